"""When warm-up ends: with the last of what a cold start costs, not with luck."""

import pytest

from llmprof.analysis.settling import has_settled
from llmprof.schema.cost import Phase


@pytest.mark.parametrize(
    ("steps_ms", "settled"),
    [
        ([20.0], False),  # one round tells nothing
        ([30.0, 20.0], False),  # still getting faster
        ([30.0, 20.0, 19.7], True),  # by 1.5 %
        ([30.0, 20.0, 19.2], False),  # by 4 %
        ([19.3, 20.3], True),  # slower than before is no warm-up
        ([20.0, 21.0, 19.8], True),  # a machine that goes up and down
    ],
)
def test_a_round_that_is_hardly_faster_than_all_before_it_ends_warm_up(
    steps_ms: list[float], settled: bool
) -> None:
    assert has_settled([{Phase.DECODE: one} for one in steps_ms]) is settled


def test_every_phase_must_have_settled() -> None:
    first = {Phase.PREFILL: 0.200, Phase.DECODE: 0.020}
    assert not has_settled([first, {Phase.PREFILL: 0.150, Phase.DECODE: 0.020}])
    assert has_settled([first, {Phase.PREFILL: 0.199, Phase.DECODE: 0.0202}])


def test_a_phase_that_was_not_there_before_is_not_known_to_have_settled() -> None:
    assert not has_settled([{Phase.DECODE: 0.02}, {Phase.DECODE: 0.02, Phase.PREFILL: 0.1}])
