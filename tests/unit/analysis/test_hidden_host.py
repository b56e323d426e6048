"""The host beside a device: the longer one is the step."""

from dataclasses import replace

import pytest

from llmprof.analysis.host_forecast import hidden_host
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.spans import Span
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Part
from llmprof.schema.prediction import OverheadTime, PhasePrediction
from llmprof.schema.run import RunRecord
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import device_ceilings
from tests.records import a_run_record, model_phase
from tests.step_plans import READ_BYTES_PER_S

DEVICE = Span(4e-3, 3.8e-3, 4.2e-3)


def starts(base_s: float, target_s: float) -> OverheadTime:
    return OverheadTime(phase=Phase.DECODE, group=None, base_s=base_s, target_s=target_s)


def test_a_graph_that_becomes_eager_waits_for_the_host() -> None:
    """A graph's launch takes 0.1 ms; op by op, a step without weights took 6 ms on this host."""
    step, host = hidden_host(DEVICE, Span.exactly(0.1e-3), -1, starts(0.1e-3, 6e-3))
    assert step.point == 6e-3
    assert host.point == pytest.approx(2e-3)
    assert (host.low, host.high) == pytest.approx((4.5e-3 - 4.2e-3, 7.5e-3 - 3.8e-3))
    assert step.low == pytest.approx(4.5e-3)
    assert step.high == pytest.approx(7.5e-3)


def test_an_eager_step_that_becomes_a_graph_is_the_devices() -> None:
    step, host = hidden_host(DEVICE, Span.exactly(6e-3), 1, starts(6e-3, 0.1e-3))
    assert (step, host.point, host.low) == (DEVICE, 0.0, 0.0)


def test_without_a_change_the_measured_host_stays() -> None:
    step, _ = hidden_host(DEVICE, Span.exactly(5e-3), 0, starts(1.0, 1.0))
    assert step.point == 5e-3


def waiting(*host_s: float) -> RunRecord:
    """A GPU whose kernels take 11 ms, and a host that takes `host_s` for the steps of a round."""
    plan = model_phase(Phase.DECODE, host_s=0.0, steps=len(host_s))
    made = a_run_record((replace(plan, device_s=plan.step_s),), noise=0.0)
    rounds = [
        one.model_copy(
            update={
                "steps": tuple(
                    step.model_copy(update={"duration_s": duration_s})
                    for step, duration_s in zip(one.steps, host_s, strict=True)
                )
            }
        )
        for one in made.rounds
    ]
    return made.model_copy(update={"rounds": tuple(rounds), "stated_costs": ()})


def decode_of(record: RunRecord, *sets: str, on: Ceilings | None = None) -> PhasePrediction:
    settings = changed_settings(record.settings, sets)
    (found,) = predict(BaseRun.of(record), settings, ceilings=on).phases
    return found


def test_no_change_leaves_a_step_that_waits_for_its_host_as_it_is() -> None:
    """The host's steps take 18 to 22 ms, 20 in the middle: the shortest of them is none to predict from."""
    found = decode_of(waiting(18e-3, 20e-3, 20e-3, 22e-3))
    assert found.step_s.point == pytest.approx(20e-3)
    assert found.speedup is not None
    assert found.speedup.point == pytest.approx(1.0)


def test_groups_and_exposed_host_time_make_up_the_step() -> None:
    """11 ms of kernels under 20 ms of host; at batch 64 they take longer, and nothing is exposed."""
    record = waiting(*(20e-3,) * 4)
    for sets in ((), ("workload.batch=64",)):
        found = decode_of(record, *sets)
        gaps_s = sum(one.predicted_s for one in found.parts if one.part is Part.GAPS)
        groups_s = sum(one.predicted_s.point for one in found.groups)
        assert groups_s + gaps_s == pytest.approx(found.step_s.point)
        (host,) = (one.predicted_s for one in found.groups if one.group is None)
        (part_s,) = (one.predicted_s for one in found.parts if one.part is Part.HOST)
        assert host.point == pytest.approx(part_s)
        assert host.low <= host.point <= host.high


def test_the_host_of_another_device_may_be_half_or_twice_as_fast() -> None:
    on = device_ceilings(10 * READ_BYTES_PER_S, 1e14)
    step = decode_of(waiting(*(20e-3,) * 4), on=on).step_s
    assert step.low <= 10e-3
    assert step.point == pytest.approx(20e-3)
    assert step.high >= 40e-3
