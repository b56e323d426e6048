"""Products that take in what lies around them, by themselves."""

import importlib.util

import pytest
import torch

from llmprof.architectures.config_json import parse_config
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.experiments.fused_operands import fused_product, takes_in_all
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig
from tests.published import LLAMA_3_1_8B, decoder
from tests.tiny_decoders import DECODERS, on_paper

MODEL = decoder("small", 2, 64, 96, 4, 2, 50, context=128)
ROWS = 3
KERNELS = {
    OpGroup.QKV_PROJECTION: ("triton_normed_matvec", 128),
    OpGroup.OUTPUT_PROJECTION: ("triton_added_matvec_", None),
    OpGroup.GATE_UP_PROJECTION: ("triton_gated_matvec", 96),
    OpGroup.DOWN_PROJECTION: ("triton_added_matvec_", None),
    OpGroup.LM_HEAD: ("triton_normed_matvec", 50),
}
"""And the numbers of each row that comes back."""
SHAPES = {
    OpGroup.QKV_PROJECTION: (128, 64),
    OpGroup.OUTPUT_PROJECTION: (64, 64),
    OpGroup.GATE_UP_PROJECTION: (192, 64),
    OpGroup.DOWN_PROJECTION: (64, 96),
    OpGroup.LM_HEAD: (50, 64),
}


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="triton is not installed")
@pytest.mark.parametrize("group", PROJECTIONS)
def test_a_group_is_timed_by_the_one_kernel_that_a_step_starts(group: OpGroup) -> None:
    """On tensors without numbers: what it is given beside the weight is made before it is called."""
    from tests.own_launches import OwnOperators

    operator, width = KERNELS[group]
    weight = torch.empty(SHAPES[group], dtype=torch.bfloat16, device="meta")
    product = fused_product(group, MODEL, ROWS, weight)
    x = torch.empty(ROWS, SHAPES[group][1], dtype=torch.bfloat16, device="meta")
    with OwnOperators() as own:
        y = product(x)
    assert own.calls == {operator: 1}
    assert own.launches <= 2
    if width is not None:
        assert y.shape == (ROWS, width)


def whole(model: ModelConfig, fused_rows: int) -> set[OpGroup]:
    sequences = (SequenceShape(count=2, new_tokens=1, cached_tokens=64),)
    shape = StepShape(phase=Phase.DECODE, sequences=sequences, logit_rows=2)
    options = CostOptions(compute_dtype="bf16", fused_rows=fused_rows)
    cost = step_cost(model, on_paper(model).manifest, shape, options)
    return {group for group in PROJECTIONS if takes_in_all(group, cost.ops)}


def test_what_a_kernel_leaves_to_others_is_seen_in_the_ops_of_the_step() -> None:
    """Of Gemma 2, another norm follows what a block projects."""
    assert whole(LLAMA_3_1_8B, 16) == set(PROJECTIONS)
    bare = {OpGroup.QKV_PROJECTION, OpGroup.LM_HEAD}
    assert whole(LLAMA_3_1_8B, 0) == bare
    gemma = next(one for one in DECODERS if one.config["model_type"] == "gemma2")
    around = parse_config(gemma.config, name="gemma")
    assert whole(around, 16) == bare | {OpGroup.GATE_UP_PROJECTION}
