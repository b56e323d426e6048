"""Which groups of a fused step run another kernel than those of a step op by op."""

import pytest

from llmprof.analysis.kernel_keys import fused_kernel, kernel_key
from llmprof.analysis.prediction_target import Target, make_target
from llmprof.architectures.presets import preset_config
from llmprof.costs.weight_layout import laid_out
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, StepShape
from llmprof.schema.settings import RunConfig

EVERY = {*PROJECTIONS, OpGroup.KV_APPEND}
BLOCK_ENDS = {OpGroup.OUTPUT_PROJECTION, OpGroup.DOWN_PROJECTION}


def both(preset: str) -> tuple[Target, Target]:
    """A step op by op, and one of fused kernels."""
    settings = RunConfig.model_validate(
        {"model": preset, "weights": {"source": "random", "dtype": "bf16"}}
    )
    model = preset_config(preset)
    weights = laid_out(model, settings.weights, "bf16")
    apart, fused = (
        make_target(settings, model, weights, "bf16", decode_kernel=True, fused_rows=rows)
        for rows in (0, 16)
    )
    return apart, fused


def decode_shape(one: Target) -> StepShape:
    return one.cost(Phase.DECODE).shape


@pytest.mark.parametrize(
    ("preset", "fuses"),
    [
        ("llama-3.1-8b", EVERY),
        ("gemma-3-27b", EVERY - BLOCK_ENDS),  # a norm comes before the addition
        ("qwen3-30b-a3b", EVERY - {OpGroup.GATE_UP_PROJECTION, OpGroup.DOWN_PROJECTION}),
    ],
)
def test_a_kernel_is_another_one_where_it_takes_something_in(
    preset: str, fuses: set[OpGroup]
) -> None:
    apart, fused = both(preset)
    shape = decode_shape(fused)
    keys = {group: [kernel_key(group, one, shape) for one in (apart, fused)] for group in EVERY}
    assert {group for group, (one, other) in keys.items() if one != other} == fuses
    assert {group for group in EVERY if fused_kernel(group, fused, shape)} == fuses


def test_a_group_whose_kernel_stays_does_the_same_work_in_both() -> None:
    """By the costs of the step, which know of no kernels."""
    apart, fused = (one.cost(Phase.DECODE) for one in both("gemma-3-27b"))
    for group in BLOCK_ENDS:
        assert apart.of_groups(group).ops == fused.of_groups(group).ops
