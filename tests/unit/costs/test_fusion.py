"""What kernels that hold several ops move, against sums by hand for one layer of a small decoder."""

import pytest

from llmprof.architectures.families import GEMMA_NORMS
from llmprof.architectures.manifest import manifest_from_config
from llmprof.costs.fusion import fused_rows_of
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.errors import CapabilityError
from llmprof.schema.cost import OpCost, OpGroup, Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import ExecutionMode, ExecutionSettings, Fusion, KvLayout
from tests.published import decoder

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 64, 96, 4, 2, 16, 50
QUERIES, KEYS = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
MODEL = decoder("small", 1, HIDDEN, INNER, HEADS, KV_HEADS, VOCAB, qk_norm=True)
ROWS, NUMBER = 3, 2
TOGETHER = {OpGroup.NORM, OpGroup.ROPE, OpGroup.ACTIVATION}


def decode(model: ModelConfig, options: CostOptions, rows: int = ROWS) -> StepCost:
    sequences = (SequenceShape(count=rows, new_tokens=1, cached_tokens=7),)
    shape = StepShape(phase=Phase.DECODE, sequences=sequences, logit_rows=rows)
    return step_cost(model, manifest_from_config(model, dtype="bf16"), shape, options)


def by_name(cost: StepCost) -> dict[str, OpCost]:
    return {op.name: op for op in cost.ops}


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("qkv_projection", HIDDEN + QUERIES + 2 * KEYS),
        ("output_projection", QUERIES + 2 * HIDDEN),
        ("gate_up_projection", HIDDEN + INNER),
        ("down_projection", INNER + 2 * HIDDEN),
        ("kv_append", 2 * (QUERIES + KEYS) + KEYS),
        ("lm_head", HIDDEN),
    ],
)
def test_a_kernel_reads_its_input_and_writes_its_result(name: str, numbers: int) -> None:
    """Products that are added read the stream too; rotated queries and keys are written back."""
    op = by_name(decode(MODEL, CostOptions(fused_rows=16)))[name]
    assert op.calls == 1
    assert op.traffic.activations == pytest.approx(ROWS * numbers * NUMBER, rel=1e-12)


def test_rows_that_are_fused_follow_from_switch_dtype_and_device() -> None:
    assert fused_rows_of(ExecutionSettings(fused=Fusion.AUTO), "bf16", trouble=None) == 16
    assert fused_rows_of(ExecutionSettings(fused=Fusion.ON), "fp16", trouble=None) == 16
    assert fused_rows_of(ExecutionSettings(fused=Fusion.OFF), "bf16", trouble=None) == 0
    assert fused_rows_of(ExecutionSettings(fused=Fusion.AUTO), "fp32", trouble=None) == 0
    assert fused_rows_of(ExecutionSettings(fused=Fusion.AUTO), "bf16", trouble="no GPU") == 0
    with pytest.raises(CapabilityError, match=r"execution\.fused=on is not available: no GPU"):
        fused_rows_of(ExecutionSettings(fused=Fusion.ON), "bf16", trouble="no GPU")


def test_a_compiled_step_has_no_fused_kernels_of_ours() -> None:
    compiled = ExecutionSettings(mode=ExecutionMode.COMPILED)
    assert fused_rows_of(compiled, "bf16", trouble=None) == 0
    with pytest.raises(CapabilityError, match="what lies between products by itself"):
        fused_rows_of(compiled.model_copy(update={"fused": Fusion.ON}), "bf16", trouble=None)


def test_what_must_be_read_and_multiplied_stays() -> None:
    """Gains belong to who reads them now."""
    alone, together = (decode(MODEL, CostOptions(fused_rows=rows)) for rows in (0, 16))
    assert together.flops == alone.flops
    assert together.traffic.required == pytest.approx(alone.traffic.required, rel=1e-12)
    assert together.traffic.activations < alone.traffic.activations
    before, after = by_name(alone), by_name(together)
    gains = before["norm.query"].traffic.weights + before["norm.key"].traffic.weights
    assert gains == 2 * HEAD_DIM * NUMBER
    assert after["kv_append"].traffic.weights == gains
    assert after["qkv_projection"].traffic.weights == (
        before["qkv_projection"].traffic.weights + HIDDEN * NUMBER
    )
    assert TOGETHER.isdisjoint(op.group for op in together.ops)
    assert {op.group for op in alone.ops} >= TOGETHER


def test_steps_of_many_rows_run_op_by_op_but_for_their_few_logits() -> None:
    options = CostOptions(fused_rows=16)
    assert "norm.input" not in by_name(decode(MODEL, options, rows=16))
    assert by_name(decode(MODEL, options, rows=17)) == by_name(
        decode(MODEL, CostOptions(), rows=17)
    )
    prompt = StepShape(
        phase=Phase.PREFILL,
        sequences=(SequenceShape(new_tokens=40, cached_tokens=0),),
        logit_rows=1,
    )
    ops = by_name(step_cost(MODEL, manifest_from_config(MODEL, dtype="bf16"), prompt, options))
    assert "norm.input" in ops
    assert "norm.final" not in ops


def test_what_lies_between_a_product_and_the_stream_keeps_them_apart() -> None:
    """Sums over devices; and without a cache there is no append that could rotate."""
    shared = by_name(decode(MODEL, CostOptions(fused_rows=16, tensor_parallel=2)))
    assert "output_projection.residual" in shared
    assert "down_projection.residual" in shared
    assert "norm.input" not in shared
    shape = StepShape(
        phase=Phase.PREFILL,
        sequences=(SequenceShape(new_tokens=4, cached_tokens=0),),
        logit_rows=1,
    )
    options = CostOptions(fused_rows=16, kv_layout=KvLayout.NONE)
    ops = by_name(step_cost(MODEL, manifest_from_config(MODEL, dtype="bf16"), shape, options))
    assert {"rope", "norm.query", "norm.key"} <= set(ops)


def test_of_a_block_that_ends_with_a_norm_the_addition_stays_apart() -> None:
    """As many norms as Gemma 4 has around its dense and its routed half are such a layer too."""
    experts = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2")
    kind = MODEL.layers[0].model_copy(
        update={"norms": (*GEMMA_NORMS, *experts, "pre_feedforward_layernorm_2")}
    )
    gemma = MODEL.model_copy(update={"layer_kinds": (kind,), "layer_pattern": (0,)})
    cost = decode(gemma, CostOptions(fused_rows=16))
    assert {"output_projection.residual", "down_projection.residual"} <= set(by_name(cost))
