import pytest

from llmprof.analysis.report import build_report
from llmprof.analysis.telemetry import energy_per_token, held_back_caveats
from llmprof.schema.run import DeviceTelemetry, RunRecord
from tests.records import a_run_record


def with_telemetry(telemetry: DeviceTelemetry | None) -> RunRecord:
    record = a_run_record()
    rounds = tuple(one.model_copy(update={"telemetry": telemetry}) for one in record.rounds)
    return record.model_copy(update={"rounds": rounds})


def test_energy_per_token_is_over_prompt_and_output() -> None:
    record = with_telemetry(DeviceTelemetry(energy_j=100.0, interval_s=2.0))
    tokens = sum(step.shape.new_tokens for step in record.rounds[0].steps)
    estimate = energy_per_token(record.rounds)
    assert estimate is not None
    assert estimate.point == pytest.approx(100.0 / tokens)
    assert build_report(record).energy_per_token_j == estimate


@pytest.mark.parametrize("telemetry", [None, DeviceTelemetry(missing={"energy_j": "no counter"})])
def test_without_a_counter_there_is_no_energy(telemetry: DeviceTelemetry | None) -> None:
    assert energy_per_token(with_telemetry(telemetry).rounds) is None


def test_a_clock_that_was_held_back_is_said_by_cause() -> None:
    telemetry = DeviceTelemetry(held_back_s={"power": 0.9, "thermal": 0.1}, interval_s=2.0)
    (caveat,) = held_back_caveats(with_telemetry(telemetry).rounds)
    assert caveat.code == "held-back"
    assert "power held the clock back" in caveat.message
    assert "45 %" in caveat.message
