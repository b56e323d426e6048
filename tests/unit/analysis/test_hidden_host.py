"""The host beside a device: the longer one is the step."""

import pytest

from llmprof.analysis.host_forecast import hidden_host
from llmprof.analysis.spans import Span
from llmprof.schema.cost import Phase
from llmprof.schema.prediction import OverheadTime

DEVICE = Span(4e-3, 3.8e-3, 4.2e-3)


def starts(base_s: float, target_s: float) -> OverheadTime:
    return OverheadTime(phase=Phase.DECODE, group=None, base_s=base_s, target_s=target_s)


def test_a_graph_that_becomes_eager_waits_for_the_host() -> None:
    """A graph's launch takes 0.1 ms; op by op, a step without weights took 6 ms on this host."""
    step, host_s = hidden_host(DEVICE, 0.1e-3, -1, starts(0.1e-3, 6e-3))
    assert step.point == 6e-3
    assert host_s == pytest.approx(2e-3)
    assert step.low == pytest.approx(4.5e-3)
    assert step.high == pytest.approx(7.5e-3)


def test_an_eager_step_that_becomes_a_graph_is_the_devices() -> None:
    step, host_s = hidden_host(DEVICE, 6e-3, 1, starts(6e-3, 0.1e-3))
    assert (step, host_s) == (DEVICE, 0.0)


def test_without_a_change_the_measured_host_stays() -> None:
    step, _ = hidden_host(DEVICE, 5e-3, 0, starts(1.0, 1.0))
    assert step.point == 5e-3
