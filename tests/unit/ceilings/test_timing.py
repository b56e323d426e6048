import time
from collections.abc import Callable

import pytest

from llmprof.ceilings.timing import Rates, Stopwatch, Turns, race, repeat, take_turns


class ListedTimes(Stopwatch):
    """Every call takes the next listed time."""

    def __init__(self, *times_s: float) -> None:
        super().__init__("cpu")
        self._times_s = list(times_s)

    def time_s(self, call: Callable[[], object]) -> float:
        call()
        return self._times_s.pop(0)


def test_rates_are_summed_up_by_best_median_and_quartiles() -> None:
    rates = Rates((10.0, 30.0, 20.0, 50.0, 40.0))
    assert (rates.best, rates.median) == (50.0, 30.0)
    assert rates.spread == pytest.approx((40 - 20) / 30)


def test_a_single_repeat_has_no_spread() -> None:
    assert Rates((7.0,)).spread == 0.0


def test_the_ceiling_is_the_best_on_a_cpu_and_the_median_on_a_gpu() -> None:
    rates = Rates((1.0, 2.0, 9.0))
    assert rates.ceiling("cpu") == 9.0
    assert rates.ceiling("cuda:0") == 2.0


def test_rivals_run_in_turn_and_as_often_as_asked_for_without_any_time_left() -> None:
    order: list[str] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    rates = race(ListedTimes(1.0, 2.0, 4.0, 8.0), calls, 16.0, budget_s=0.0, at_least=2)
    assert order == ["a", "b", "a", "b"]
    assert rates["a"].per_s == (16.0, 4.0)
    assert rates["b"].per_s == (8.0, 2.0)


def test_a_call_is_repeated_until_its_time_is_over() -> None:
    calls: list[int] = []
    rates = repeat(Stopwatch("cpu"), lambda: calls.append(1), 1.0, budget_s=0.005, at_least=1)
    assert len(rates.per_s) == len(calls) > 1
    assert min(rates.per_s) > 0


def test_rivals_take_turns_at_their_own_work_and_the_fastest_wins() -> None:
    order: list[str] = []
    rivals = [(lambda: order.append("a"), 8.0), (lambda: order.append("b"), 9.0)]
    stopwatch = ListedTimes(1.0, 3.0, 2.0, 1.0, 1.0)
    turns = take_turns(stopwatch, rivals, budget_s=60.0, most_calls=5)
    assert order == ["a", "b", "a", "b", "a", "b", "a"]  # the first of each is not timed
    assert turns.calls == ((0, 8.0), (1, 3.0), (0, 4.0), (1, 9.0), (0, 8.0))
    assert turns.winner("cpu") == (1, 9.0)  # the best: 8 and 9
    assert turns.winner("cuda:0") == (0, 8.0)  # the median: 8 and 6


def test_everyone_has_a_turn_though_the_time_is_over() -> None:
    rivals = [(lambda: None, 1.0)] * 3
    assert len(take_turns(Stopwatch("cpu"), rivals, budget_s=0.0, most_calls=1).calls) == 3


def test_no_turn_begins_that_would_end_too_late() -> None:
    """Calls of 20 s (so the clock says) in a budget of 50 s: two, after one that is not timed."""
    now_s = [0.0]
    rivals = [(lambda: now_s.append(now_s[-1] + 20), 1.0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: now_s[-1])
        turns = take_turns(ListedTimes(*[1.0] * 9), rivals, budget_s=50.0, most_calls=9)
    assert len(turns.calls) == 2
    assert len(now_s) == 1 + 1 + 2


def test_a_long_call_does_not_keep_others_from_their_turns() -> None:
    """In 60 s: the second one takes a minute (so it says), and has had its turn."""
    now_s = [0.0]
    rivals = [
        (lambda: now_s.append(now_s[-1] + 1), 1.0),
        (lambda: now_s.append(now_s[-1] + 40), 1.0),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: now_s[-1])
        turns = take_turns(ListedTimes(*[1.0] * 12), rivals, budget_s=46.0, most_calls=12)
    assert [rival for rival, _ in turns.calls] == [0, 1, 0, 0, 0, 0, 0]


def test_calls_are_stored_to_four_digits() -> None:
    assert Turns(((0, 27_123_456_789.0), (1, 0.99996))).stored == (27_120_000_000.0, 1.0)
