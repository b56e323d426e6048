from collections.abc import Callable, Iterable

import pytest

from llmprof.experiments.timed_pairs import AGREED, kernel_time, repeat_until_agreed
from llmprof.schema.cost import OpGroup, Phase

Times = tuple[float, float]


def taken(times: Iterable[Times]) -> Callable[[], Times]:
    rest = iter(times)
    return lambda: next(rest)


def repeated(times: Iterable[Times], *, on_cpu: bool = True) -> list[Times]:
    return repeat_until_agreed(taken(times), lambda pair: pair, repeats=3, on_cpu=on_cpu)


def test_repeats_that_agree_end_after_a_batch() -> None:
    calm = [(1.0, 2.0), (1.1, 2.1), (1.0 + AGREED / 2, 2.2)]
    assert repeated([*calm, (9.0, 9.0)]) == calm


@pytest.mark.parametrize("side", [0, 1])
def test_a_disturbed_batch_is_followed_by_others_until_both_sides_agree(side: int) -> None:
    calm, busy = (1.0, 1.0), tuple(30.0 if one == side else 1.0 for one in (0, 1))
    disturbed: list[Times] = [calm, calm, (busy[0], busy[1])]
    pairs = repeated([*disturbed, calm, calm, calm, (9.0, 9.0)])
    assert len(pairs) == 6
    timed = kernel_time(Phase.PREFILL, OpGroup.LM_HEAD, pairs, method="by hand", on_cpu=True)
    assert (timed.base_s, timed.target_s, timed.spread) == (1.0, 1.0, 0.0)


def test_a_machine_that_never_calms_down_ends_with_what_there_is_and_says_so() -> None:
    busy = [(float(2**index), 1.0) for index in range(12)]
    pairs = repeated(busy)
    assert pairs == busy
    timed = kernel_time(Phase.PREFILL, OpGroup.LM_HEAD, pairs, method="by hand", on_cpu=True)
    assert timed.spread == 3.0
