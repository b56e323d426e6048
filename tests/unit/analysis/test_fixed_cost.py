"""What ops cost whatever their size: two alphas, and which group pays which."""

import pytest

from llmprof.analysis.fixed_cost import GroupFixedCost
from llmprof.schema.ceilings import FixedCost
from llmprof.schema.cost import OpGroup

MEASURED = FixedCost(
    alpha_s=4e-6, spread=0.25, method="m", graph_s=1e-6, small_s=2e-6, small_graph_s=0.5e-6
)
OPS = {OpGroup.DOWN_PROJECTION: 60, OpGroup.NORM: 61, OpGroup.COMMUNICATION: 65}


def test_small_kernels_have_an_alpha_of_their_own_and_a_graph_both_of_its_own() -> None:
    stream = GroupFixedCost.of(MEASURED, OPS)
    graph = GroupFixedCost.of(MEASURED, OPS, in_graph=True)
    assert stream.group_s(OpGroup.DOWN_PROJECTION, 30) == 60 * 4e-6
    assert stream.group_s(OpGroup.NORM, 61) == 61 * 2e-6
    assert graph.group_s(OpGroup.DOWN_PROJECTION, 30) == 60 * 1e-6
    assert graph.group_s(OpGroup.NORM, 61) == 61 * 0.5e-6
    alone = GroupFixedCost.of(MEASURED.model_copy(update={"small_s": None}), OPS)
    assert alone.group_s(OpGroup.NORM, 61) == 61 * 4e-6


def test_what_was_not_counted_costs_by_its_calls_and_a_collective_has_its_own() -> None:
    assert GroupFixedCost.of(MEASURED, None).group_s(OpGroup.DOWN_PROJECTION, 30) == 30 * 4e-6
    assert GroupFixedCost.of(MEASURED, OPS).group_s(OpGroup.ROPE, 30) == 0
    assert GroupFixedCost.of(MEASURED, OPS).group_s(OpGroup.COMMUNICATION, 65) == 0


def test_both_alphas_are_no_surer_than_their_spread() -> None:
    same, low, high = GroupFixedCost.of(MEASURED, OPS).variants
    assert (same.alpha_s, low.alpha_s, high.alpha_s) == pytest.approx((4e-6, 3e-6, 5e-6))
    assert (same.small_s, low.small_s, high.small_s) == pytest.approx((2e-6, 1.5e-6, 2.5e-6))
