"""One step split with a pencil: what is small, what counts as link time, and a step that does not fit."""

import pytest

from llmprof.analysis.fixed_cost import GroupFixedCost
from llmprof.analysis.group_times import GroupedStep
from llmprof.analysis.op_roof import OpRoof
from llmprof.analysis.rates import Rates
from llmprof.analysis.step_split import GroupSplit, StepSplit, StepWork, split_step
from llmprof.schema.cost import (
    OpGroup,
)
from llmprof.schema.ledger import Part
from llmprof.schema.verdict import Limit
from tests.one_op import step_of_one_op


def reading(seconds: float) -> OpRoof:
    return OpRoof(seconds, 0.0, {Part.MEMORY_WEIGHTS: 1e6 * seconds}, cached_bytes=0.0)


def group(time_s: float, fixed_cost_s: float, link_s: float) -> GroupSplit:
    return GroupSplit(time_s, fixed_cost_s, (reading(link_s),))


@pytest.mark.parametrize(
    ("fixed_cost_s", "link_s", "small"),
    [
        (6.0, 1.0, True),
        (4.0, 1.0, False),  # less than half of the time
        (6.0, 7.0, False),  # the link is longer still
    ],
)
def test_a_small_group_is_mostly_fixed_cost(
    fixed_cost_s: float, link_s: float, small: bool
) -> None:
    one = group(10.0, fixed_cost_s, link_s)
    assert one.is_small is small
    assert one.limits_s()[Limit.FIXED_COST if small else Limit.MEMORY] == 10.0


def test_a_small_group_keeps_no_link_busy() -> None:
    groups = {OpGroup.LM_HEAD: group(10.0, 1.0, 5.0), OpGroup.EMBEDDING: group(10.0, 6.0, 2.0)}
    split = StepSplit(step_s=20.0, groups=groups, host_s=0.0, gaps_s=None)
    assert split.link_s(Limit.MEMORY) == 5.0


def test_a_step_that_was_slower_outside_than_the_clean_one_is_scaled_alike() -> None:
    """12 s outside and 4 s inside, of a clean step of 8 s: half of each."""
    work = StepWork(step_of_one_op(1e9), GroupFixedCost(0.0, 0.0, None), None)
    grouped = GroupedStep(0.0, 16.0, {OpGroup.LM_HEAD: 4.0}, outside_s=12.0)
    split = split_step(8.0, None, grouped, work, Rates(1e9, 1e12, "bf16", {}))
    assert (split.host_s, split.groups[OpGroup.LM_HEAD].time_s) == (6.0, 2.0)
    assert sum(split.parts_s().values()) == 8.0
