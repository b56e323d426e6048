from collections.abc import Callable, Mapping

import pytest
import torch

from llmprof.ceilings import fixed_cost
from llmprof.ceilings.fixed_cost import measure_fixed_cost
from llmprof.schema.run import Contention
from tests.records import QUIET
from tests.unit.ceilings.factories import a_cpu

BUSY = QUIET.model_copy(update={"run_queue_fraction": 0.3})
KINDS = {"add": 0.9e-6, "mul": 0.8e-6, "copy_": 0.5e-6, "rsqrt": 1.0e-6}


def given_attempts(
    monkeypatch: pytest.MonkeyPatch, *attempts: tuple[Mapping[str, float], Contention]
) -> list[Mapping[str, float]]:
    """What each attempt measures and how disturbed it was; returns the attempts that are left."""
    left = [times for times, _ in attempts]
    verdicts = [contention for _, contention in attempts]

    class Meter:
        def __init__(self, threads: int) -> None:
            assert threads == 1

        def start(self) -> None:
            pass

        def stop(self) -> Contention:
            return verdicts.pop(0)

    def times(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        measured = left.pop(0)
        return {name: measured[name] for name in calls}

    monkeypatch.setattr(fixed_cost, "_times_s", times)
    monkeypatch.setattr(fixed_cost, "ContentionMeter", Meter)
    return left


def test_alpha_is_the_cheapest_kind_of_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quartiles of 0.5, 0.8, 0.9, 1.0 are 0.725 and 0.925, the median 0.85."""
    given_attempts(monkeypatch, (KINDS, QUIET))
    cost = measure_fixed_cost(a_cpu(threads=1), "cpu")
    assert cost.alpha_s == 0.5e-6
    assert cost.spread == pytest.approx((0.925 - 0.725) / 0.85)
    assert cost.method.startswith("copy_, the cheapest of add, mul, copy_, rsqrt on 576 float32")
    assert cost.parallel_s is None


def test_waking_threads_is_told_apart_from_alpha(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {**KINDS, "shared": 2.4e-6, "alone": 0.4e-6}
    given_attempts(monkeypatch, (times, QUIET))
    cost = measure_fixed_cost(a_cpu(threads=2), "cpu")
    assert cost.alpha_s == 0.5e-6
    assert cost.parallel_s == pytest.approx(2.0e-6)


def test_a_difference_that_drowns_in_noise_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    given_attempts(monkeypatch, ({**KINDS, "shared": 0.4e-6, "alone": 0.41e-6}, QUIET))
    assert measure_fixed_cost(a_cpu(threads=2), "cpu").parallel_s is None


def test_disturbed_attempts_are_repeated_and_the_least_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = {name: 3 * time_s for name, time_s in KINDS.items()}
    left = given_attempts(monkeypatch, (slow, BUSY), (KINDS, BUSY), (slow, BUSY), (KINDS, QUIET))
    assert measure_fixed_cost(a_cpu(threads=1), "cpu").alpha_s == 0.5e-6
    assert len(left) == 1


def test_a_quiet_attempt_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    left = given_attempts(monkeypatch, (KINDS, QUIET), (KINDS, QUIET))
    measure_fixed_cost(a_cpu(threads=1), "cpu")
    assert len(left) == 1


def test_the_ops_are_those_of_one_row_into_memory_that_is_there() -> None:
    with torch.inference_mode():
        for op in fixed_cost._tiny_ops().values():
            first, second = op(), op()
            assert isinstance(first, torch.Tensor)
            assert isinstance(second, torch.Tensor)
            assert first.numel() == 576
            assert first.data_ptr() == second.data_ptr()


def test_an_op_of_this_machine_costs_something_less_than_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fixed_cost, "_ATTEMPT_S", 0.02)
    cost = measure_fixed_cost(a_cpu(threads=1), "cpu")
    assert 1e-8 < cost.alpha_s < 1e-3
