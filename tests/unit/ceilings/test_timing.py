from collections.abc import Callable

import pytest

from llmprof.ceilings.timing import Rates, Stopwatch, race, repeat


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
