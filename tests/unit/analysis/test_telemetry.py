import pytest

from llmprof.analysis.report import build_report
from llmprof.analysis.telemetry import (
    energy_per_token,
    held_back_caveats,
    telemetry_caveats,
)
from llmprof.schema.run import DeviceTelemetry, EnergyWindow, Round, RunRecord
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


def test_a_sensor_that_no_round_could_read_is_said_once_with_the_reason() -> None:
    missing = {"power_w": "Not Supported", "sm_clock_hz": "Not Supported", "dram_activity": "short"}
    found = [*telemetry_caveats(with_telemetry(DeviceTelemetry(missing=missing)).rounds)]
    assert [one.code for one in found] == ["telemetry"]
    assert "power_w, sm_clock_hz (Not Supported)" in found[0].message
    assert not [*telemetry_caveats(with_telemetry(None).rounds)]


def test_memory_that_another_process_frees_is_a_warning_and_growing_is_none() -> None:
    """A co-tenant that ends gives back 12 GB; nothing aborts."""
    record = a_run_record()

    def used(*gigabytes: float) -> tuple[Round, ...]:
        return tuple(
            one.model_copy(
                update={"telemetry": DeviceTelemetry(memory_used_bytes=round(1e9 * size))}
            )
            for one, size in zip(record.rounds, gigabytes, strict=False)
        )

    (caveat,) = telemetry_caveats(used(18, 18, 6, 6))
    assert caveat.code == "memory-freed"
    assert "11.2 GiB" in caveat.message
    assert not [*telemetry_caveats(used(6, 18, 17.9, 18))]


def test_short_rounds_have_the_energy_of_several() -> None:
    """300 J in 2 s over ten rounds; the counter's steps of 0.1 s leave a twentieth open."""
    record = with_telemetry(DeviceTelemetry(missing={"energy_j": "the round took 0.20 s"}))
    window = EnergyWindow(rounds=10, energy_j=300.0, interval_s=2.0)
    tokens = sum(step.shape.new_tokens for step in record.rounds[0].steps)
    estimate = energy_per_token(record.rounds, window)
    assert estimate is not None
    assert estimate.point == pytest.approx(30.0 / tokens)
    assert estimate.low == pytest.approx(28.5 / tokens)
    assert estimate.high == pytest.approx(31.5 / tokens)
    with_window = record.model_copy(update={"energy": window})
    assert build_report(with_window).energy_per_token_j == estimate


def test_energy_from_power_is_as_wrong_as_its_readings() -> None:
    """However long they went on: 5 % of 300 J over ten rounds."""
    record = with_telemetry(DeviceTelemetry(missing={"energy_j": "Not Supported"}))
    window = EnergyWindow(rounds=10, energy_j=300.0, interval_s=20.0, power_samples=400)
    tokens = sum(step.shape.new_tokens for step in record.rounds[0].steps)
    estimate = energy_per_token(record.rounds, window)
    assert estimate is not None
    assert (estimate.low, estimate.high) == pytest.approx((28.5 / tokens, 31.5 / tokens))


def test_a_round_with_energy_of_its_own_goes_before_a_window() -> None:
    record = with_telemetry(DeviceTelemetry(energy_j=100.0, interval_s=2.0))
    window = EnergyWindow(rounds=10, energy_j=300.0, interval_s=2.0)
    assert energy_per_token(record.rounds, window) == energy_per_token(record.rounds)
    assert energy_per_token([], window) is None
