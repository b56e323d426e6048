"""Laws that costs obey whatever the shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprof.architectures.manifest import manifest_from_config
from llmprof.costs.kv_cache import kv_bytes_per_token
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind
from tests.published import decoder

OPTIONS = st.sampled_from(
    [
        CostOptions(attention=kind, kv_bytes_per_number=number)
        for kind in AttentionKind
        for number in (1.0, 2.0, 34 / 32)
    ]
)
SEQUENCES = st.lists(
    st.builds(
        SequenceShape,
        count=st.integers(1, 4),
        new_tokens=st.integers(1, 40),
        cached_tokens=st.integers(0, 200),
    ),
    min_size=1,
    max_size=4,
).map(tuple)


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    head_dim = draw(st.integers(1, 16))
    return decoder(
        "drawn",
        layers=draw(st.integers(1, 5)),
        hidden=draw(st.integers(1, 64)),
        inner=draw(st.integers(1, 64)),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        vocab=draw(st.integers(1, 100)),
        head_dim=head_dim,
        tied=draw(st.booleans()),
        bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
    )


def cost(
    model: ModelConfig, sequences: tuple[SequenceShape, ...], rows: int, options: CostOptions
) -> StepCost:
    shape = StepShape(phase=Phase.MIXED, sequences=sequences, logit_rows=rows)
    return step_cost(model, manifest_from_config(model, "bf16"), shape, options)


@given(models(), SEQUENCES, SEQUENCES, OPTIONS)
def test_sequences_add_but_weights_are_read_once(
    model: ModelConfig,
    one: tuple[SequenceShape, ...],
    two: tuple[SequenceShape, ...],
    options: CostOptions,
) -> None:
    alone, other = cost(model, one, 2, options), cost(model, two, 3, options)
    both = cost(model, one + two, 5, options)
    assert both.flops == alone.flops + other.flops
    assert both.flops_dense == alone.flops_dense + other.flops_dense
    apart, together = alone.traffic + other.traffic, both.traffic
    for kind in ("kv_read", "kv_write", "activations", "scores", "logits"):
        assert getattr(together, kind) == pytest.approx(getattr(apart, kind))
    rows = sum(s.count * s.new_tokens for s in one)
    own_rows = rows * model.hidden_size * 2  # of the embedding table
    assert together.weights - own_rows == pytest.approx(other.traffic.weights)


@given(models(), st.integers(1, 40), st.integers(2, 8), OPTIONS)
def test_batching_multiplies_flops_and_not_projection_weights(
    model: ModelConfig, tokens: int, batch: int, options: CostOptions
) -> None:
    def of(count: int) -> StepCost:
        sequence = SequenceShape(count=count, new_tokens=tokens, cached_tokens=7)
        return cost(model, (sequence,), count, options)

    one, many = of(1), of(batch)
    assert many.flops == batch * one.flops
    for single, batched in zip(one.ops, many.ops, strict=True):
        if single.group is not OpGroup.EMBEDDING:
            assert batched.traffic.weights == single.traffic.weights


@given(models(), st.integers(1, 30))
def test_decoding_one_by_one_costs_the_causal_flops_of_a_prefill(
    model: ModelConfig, tokens: int
) -> None:
    options = CostOptions()
    prefill = cost(model, (SequenceShape(new_tokens=tokens, cached_tokens=0),), 0, options)
    steps = [
        cost(model, (SequenceShape(new_tokens=1, cached_tokens=cached),), 0, options)
        for cached in range(tokens)
    ]
    assert sum(step.flops for step in steps) == prefill.flops_causal
    written = sum(step.traffic.kv_write for step in steps)
    assert written == prefill.traffic.kv_write == tokens * kv_bytes_per_token(model, 2.0)


@given(models(), SEQUENCES, OPTIONS)
def test_no_more_than_dense_and_never_less_than_causal(
    model: ModelConfig, sequences: tuple[SequenceShape, ...], options: CostOptions
) -> None:
    step = cost(model, sequences, 1, options)
    for op in step.ops:
        assert op.flops_causal <= op.flops <= op.flops_dense
    assert step.traffic.required <= step.traffic.total


@given(models(), SEQUENCES)
def test_cached_bytes_follow_kv_heads_and_not_query_heads(
    model: ModelConfig, sequences: tuple[SequenceShape, ...]
) -> None:
    grouped = cost(model, sequences, 1, CostOptions())
    full = model.model_copy(update={"num_key_value_heads": model.num_attention_heads})
    every_head = cost(full, sequences, 1, CostOptions())
    ratio = model.num_attention_heads // model.num_key_value_heads
    assert every_head.traffic.kv_read == ratio * grouped.traffic.kv_read
    attention = [s.of_groups(OpGroup.ATTENTION).flops for s in (grouped, every_head)]
    assert attention[0] == attention[1]


@given(models(), SEQUENCES, OPTIONS)
def test_intensity_of_the_layers_does_not_depend_on_how_many_there_are(
    model: ModelConfig, sequences: tuple[SequenceShape, ...], options: CostOptions
) -> None:
    def intensity(layers: int) -> float:
        deep = model.model_copy(update={"num_hidden_layers": layers})
        ops = [op for op in cost(deep, sequences, 0, options).ops if op.calls == layers]
        return sum(op.flops for op in ops) / sum(op.traffic.required for op in ops)

    assert intensity(2) == pytest.approx(intensity(7))
