"""Costs from shapes alone against the operators that the engine really ran, to the last FLOP."""

import pytest

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.source import ModelSource
from llmprof.costs.memory import kv_bytes_reserved, kv_bytes_used
from llmprof.costs.step import step_cost
from llmprof.engine.description import cost_options
from llmprof.engine.engine import Engine
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.model import ModelConfig
from llmprof.schema.run import CountedStep
from llmprof.schema.settings import (
    AttentionKind,
    AttentionSettings,
    BatchingPolicy,
    BatchingSettings,
    ContextKind,
    KvCacheSettings,
    KvDtype,
    KvLayout,
    LengthDistribution,
    Quantization,
    RoutingSettings,
    RunConfig,
    TraceLengths,
    WeightSource,
    WeightsSettings,
    WorkloadKind,
    WorkloadSettings,
)
from tests.published import SMOLLM2_135M, decoder
from tests.tiny_decoders import DECODERS

GROUPED = decoder("grouped", 2, 48, 40, 6, 2, 90, head_dim=8, context=64)
BIASED_TIED = decoder("biased", 2, 48, 40, 6, 3, 90, tied=True, bias=True, context=64)
PACKABLE = decoder("packable", 2, 64, 96, 4, 2, 90, tied=True, context=64)
NORMED = decoder("normed", 2, 32, 40, 6, 2, 90, head_dim=8, qk_norm=True, context=64)


def settings(
    *,
    attention: AttentionKind = AttentionKind.FLASH,
    layout: KvLayout = KvLayout.CONTIGUOUS,
    context: ContextKind = ContextKind.REAL,
    batch: int = 1,
    prompt_tokens: int = 9,
    output_tokens: int = 3,
    quantization: Quantization = Quantization.NONE,
) -> RunConfig:
    return RunConfig(
        model="any",
        weights=WeightsSettings(source=WeightSource.RANDOM, quantization=quantization),
        attention=AttentionSettings(kind=attention),
        kv_cache=KvCacheSettings(layout=layout),
        workload=WorkloadSettings(
            batch=batch,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            context=context,
        ),
    )


def load(model: ModelConfig, config: RunConfig) -> Engine:
    source = ModelSource(
        name=model.name,
        kind="config",
        config=model,
        manifest=manifest_from_config(model, "bf16"),
        files=(),
        tokenizer=None,
        has_weights=False,
    )
    return Engine.load(source, config, device="cpu", threads=2, host_available_bytes=2**34)


def check_counts(model: ModelConfig, config: RunConfig) -> tuple[CountedStep, ...]:
    engine = load(model, config)
    work = open_workload(engine, config)
    recorder = OpRecorder()
    with recorder:
        work.run_round(recorder)
    options = cost_options(engine, config)
    for step in recorder.steps():
        assert not [op.op for op in step.ops if op.missing_formula]
        expected = step_cost(model, engine.manifest, step.shape, options)
        for group in OpGroup:
            counted = sum(op.flops or 0 for op in step.ops if op.group is group)
            of_group = expected.of_groups(group)
            standard = config.attention.kind is AttentionKind.STANDARD
            # a fused kernel's formula is the full rectangle, whatever the mask lets it skip
            wanted = of_group.flops if standard else of_group.flops_dense
            assert counted == wanted, (step.shape, group)
    return recorder.steps()


def test_a_512_token_prefill_and_its_decode() -> None:
    prefill, decode = check_counts(SMOLLM2_135M, settings(prompt_tokens=512, output_tokens=2))
    assert prefill.shape.phase is Phase.PREFILL
    assert sum(op.flops or 0 for op in prefill.ops) == 126_892_376_064
    assert decode.shape.cached_tokens == 512
    assert sum(op.flops or 0 for op in decode.ops) == 304_418_304


@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("attention", AttentionKind)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("model", [GROUPED, BIASED_TIED, NORMED], ids=lambda model: model.name)
def test_every_switch_and_shape(
    model: ModelConfig, batch: int, attention: AttentionKind, layout: KvLayout
) -> None:
    steps = check_counts(model, settings(attention=attention, layout=layout, batch=batch))
    phases = [step.shape.phase for step in steps]
    assert phases == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]


def test_a_filled_cache_without_a_prefill() -> None:
    steps = check_counts(GROUPED, settings(context=ContextKind.SYNTHETIC, batch=2))
    assert [step.shape.cached_tokens for step in steps] == [2 * 9, 2 * 10]


@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("attention", AttentionKind)
@pytest.mark.parametrize(
    "name", ["phi3_window", "mixtral", "qwen3_moe", "gemma2", "gemma3", "mistral_window"]
)
def test_every_family(name: str, attention: AttentionKind, layout: KvLayout) -> None:
    """With contexts beyond the windows of 16 to 24 tokens."""
    known = next(one for one in DECODERS if one.name == name)
    model = parse_config(known.config, name=name)
    config = settings(attention=attention, layout=layout, batch=3, prompt_tokens=30)
    check_counts(model, config)


@pytest.mark.parametrize(
    "routing", [{}, {"kind": "uniform"}, {"kind": "zipf", "zipf_exponent": 2.0}]
)
def test_weights_of_the_experts_that_were_routed(routing: dict[str, object]) -> None:
    """Each expert that a step multiplies by is one call of two products in each layer."""
    known = next(one for one in DECODERS if one.name == "qwen3_moe_raw_weights")
    model = parse_config(known.config, name="moe")
    config = settings(batch=3).model_copy(
        update={"routing": RoutingSettings.model_validate(routing)}
    )
    engine = load(model, config)
    work = open_workload(engine, config)
    recorder = OpRecorder()
    with recorder:
        work.run_round(recorder)
    expert_bytes = 3 * 24 * 32 * 2
    for step in recorder.steps():
        products = sum(
            op.calls for op in step.ops if op.group is OpGroup.DOWN_PROJECTION and op.flops
        )
        cost = step_cost(model, engine.manifest, step.shape, cost_options(engine, config))
        read = sum(op.traffic.weights for op in cost.ops if op.name.endswith(".experts"))
        steps_alike = [one for one in recorder.steps() if one.shape.phase is step.shape.phase]
        if len(steps_alike) == 1:
            assert read == products * expert_bytes
        assert products <= 2 * 8
    decodes = [one for one in recorder.steps() if one.shape.phase is Phase.DECODE]
    calls = [
        sum(op.calls for op in one.ops if op.group is OpGroup.DOWN_PROJECTION and op.flops)
        for one in decodes
    ]
    (mean,) = (one.experts for one in cost_options(engine, config).experts_read if one.tokens == 3)
    assert mean == sum(calls) / len(calls) / model.num_hidden_layers


@pytest.mark.parametrize("policy", BatchingPolicy)
@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("attention", AttentionKind)
def test_requests_of_different_lengths(
    attention: AttentionKind, layout: KvLayout, policy: BatchingPolicy
) -> None:
    """Pieces of prompts, mixed steps, decodes of several contexts, padded batches."""
    lengths = TraceLengths(
        prompt=LengthDistribution(kind="uniform", low=2, high=30),
        output=LengthDistribution(kind="uniform", low=2, high=9),
    )
    config = settings(attention=attention, layout=layout).model_copy(
        update={
            "workload": WorkloadSettings(kind=WorkloadKind.TRACE, requests=7, lengths=lengths),
            "batching": BatchingSettings(policy=policy, max_sequences=3, max_step_tokens=40),
        }
    )
    phases = {step.shape.phase for step in check_counts(GROUPED, config)}
    assert phases == (
        set(Phase) if policy is BatchingPolicy.CONTINUOUS else set(Phase) - {Phase.MIXED}
    )


@pytest.mark.parametrize("kv_dtype", [KvDtype.INT8, KvDtype.FP8])
def test_a_cache_of_fewer_bits_does_the_same_work(kv_dtype: KvDtype) -> None:
    kv = KvCacheSettings(layout=KvLayout.PAGED, dtype=kv_dtype)
    check_counts(GROUPED, settings(batch=2).model_copy(update={"kv_cache": kv}))


@pytest.mark.parametrize("kv_dtype", KvDtype)
@pytest.mark.parametrize("layout", KvLayout)
def test_the_engines_bytes_are_those_of_costs(layout: KvLayout, kv_dtype: KvDtype) -> None:
    if layout is KvLayout.NONE and kv_dtype is not KvDtype.AS_WEIGHTS:
        return
    config = settings(batch=3).model_copy(
        update={"kv_cache": KvCacheSettings(layout=layout, dtype=kv_dtype, block_tokens=8)}
    )
    engine = load(GROUPED, config)
    work = open_workload(engine, config)
    work.run_round(NullProbe())
    found, options = work.describe(), cost_options(engine, config)
    # the last output token is sampled and never cached; a static batch reserves to its end
    assert found.kv_bytes_used == kv_bytes_used(GROUPED, options, (11,) * 3)
    assert found.kv_bytes_reserved == kv_bytes_reserved(GROUPED, options, (12,) * 3, max_tokens=12)
    assert found.weight_bytes == manifest_from_config(GROUPED, "bf16").stored_bytes


@pytest.mark.parametrize("quantization", [Quantization.INT8, Quantization.INT4])
def test_packed_weights_are_multiplied_by_as_many_flops_and_unpacked_in_a_prefill_alone(
    quantization: Quantization,
) -> None:
    config = settings(prompt_tokens=60, output_tokens=2, quantization=quantization)
    prefill, decode = check_counts(PACKABLE, config)
    unpacked = {
        step.shape.phase: {op.group for op in step.ops if op.op == "llmprof.unpack_rows_"}
        for step in (prefill, decode)
    }
    # the head multiplies one row, and the embedding is looked up in it
    assert unpacked[Phase.PREFILL] == {OpGroup.EMBEDDING, *PROJECTIONS} - {OpGroup.LM_HEAD}
    assert unpacked[Phase.DECODE] == {OpGroup.EMBEDDING}
