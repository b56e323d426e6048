from collections.abc import Sequence

import pytest

from llmprof.ceilings import fixed_cost
from llmprof.ceilings.fixed_cost import intercept, measure_fixed_cost
from tests.unit.ceilings.factories import MIB, a_cpu, l2, l3

MACHINE = a_cpu(l2(2 * MIB), l3(32 * MIB), threads=2)


def test_the_intercept_of_a_line() -> None:
    sizes = [1e6, 2e6, 3e6, 5e6]
    assert intercept(sizes, [4e-6 + size / 50e9 for size in sizes]) == pytest.approx(4e-6)


def test_two_disturbed_times_of_seven_do_not_move_it() -> None:
    sizes = [float(size) for size in range(1, 8)]
    times = [4.0 + 2.0 * size for size in sizes]
    times[2] += 100.0
    times[6] += 50.0
    assert intercept(sizes, times) == pytest.approx(4.0)


def given_times(monkeypatch: pytest.MonkeyPatch, alpha_s: float, s_per_element: float) -> None:
    def times(sizes: Sequence[int]) -> list[float]:
        return [alpha_s + s_per_element * size for size in sizes]

    monkeypatch.setattr(fixed_cost, "_times_of_add", times)


def test_alpha_is_the_intercept_over_sizes_in_l2(monkeypatch: pytest.MonkeyPatch) -> None:
    given_times(monkeypatch, 3e-6, 1e-10)
    cost = measure_fixed_cost(MACHINE, "cpu")
    assert cost.alpha_s == pytest.approx(3e-6)
    assert cost.spread == pytest.approx(0.0, abs=1e-6)
    assert "intercept" in cost.method
    assert "2 threads" in cost.method


def test_a_line_without_a_positive_intercept_gives_the_time_of_the_smallest_op(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sizes are eighths of half of L2 at 12 bytes per element: 2 x 2 MiB here, from 2/8 on."""
    given_times(monkeypatch, -1e-6, 1e-10)
    cost = measure_fixed_cost(MACHINE, "cpu")
    smallest = 2 * MIB // 12 * 2 // 8
    assert cost.alpha_s == pytest.approx(-1e-6 + 1e-10 * smallest)
    assert f"time of {smallest:,} elements" in cost.method


def test_an_op_of_this_machine_costs_something_less_than_a_second() -> None:
    cost = measure_fixed_cost(MACHINE, "cpu")
    assert 1e-8 < cost.alpha_s < 1.0
