"""Counters and activities of a round, and what is left when any single call of NVML fails."""

import math

import pytest

from llmprof.instruments.gpm import (
    METRICS,
    GpmSampler,
    GpmUnavailable,
    calibrate,
    open_gpm,
)
from llmprof.instruments.nvml import NvmlSession, open_nvml
from llmprof.instruments.nvml_counters import AccumulatedCounters
from tests.fakes import FakeNvml

EVERY_CALL = sorted(FakeNvml()._answers)


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def a_session(nvml: FakeNvml) -> NvmlSession:
    session = open_nvml(nvml.uuid, nvml=nvml)
    assert isinstance(session, NvmlSession)
    return session


def test_counters_are_differences_over_the_round() -> None:
    """250 J in 2 s are 125 W; the clock was held back for half a second by power, never by heat."""
    nvml, time = FakeNvml(), Time()
    counters = AccumulatedCounters(nvml, "board", now_s=time)
    counters.start()
    nvml.energy_mj += 250_000
    nvml.violation_ns[0] += 500_000_000
    time.now_s += 2.0
    reading = counters.stop()
    assert reading.energy_j == 250.0
    assert reading.held_back_s == {"power": 0.5, "thermal": 0.0}
    assert reading.interval_s == 2.0
    assert reading.missing == {}


def test_a_round_too_short_for_the_energy_counter_has_none() -> None:
    nvml, time = FakeNvml(), Time()
    counters = AccumulatedCounters(nvml, "board", now_s=time)
    counters.start()
    time.now_s += 0.2
    reading = counters.stop()
    assert reading.energy_j is None
    assert "0.20 s" in reading.missing["energy_j"]
    assert reading.held_back_s == {"power": 0.0, "thermal": 0.0}


def test_a_counter_that_went_backwards_is_no_number() -> None:
    nvml, time = FakeNvml(), Time()
    counters = AccumulatedCounters(nvml, "board", now_s=time)
    counters.start()
    nvml.energy_mj = 5
    time.now_s += 2.0
    reading = counters.stop()
    assert reading.energy_j is None
    assert "backwards" in reading.missing["energy_j"]


def a_sampler(nvml: FakeNvml, time: Time) -> GpmSampler:
    return GpmSampler(nvml, "board", now_s=time)


def test_activities_are_shares() -> None:
    time = Time()
    sampler = a_sampler(FakeNvml(), time)
    sampler.start()
    time.now_s += 0.5
    reading = sampler.stop()
    assert (reading.dram_activity, reading.sm_activity) == (0.7, 0.9)
    assert (reading.tensor_activity, reading.sm_occupancy) == (0.125, 0.4)
    assert reading.missing == {}


@pytest.mark.parametrize(
    ("percent", "code", "reason"),
    [
        (math.nan, 0, "gave no number"),
        (250.0, 0, "250 %"),
        (-3.0, 0, "cannot be"),
        (70.0, 3, "NVML error 3"),
    ],
)
def test_one_bad_metric_takes_one_field(percent: float, code: int, reason: str) -> None:
    nvml, time = FakeNvml(), Time()
    nvml.gpm_percent[METRICS["dram_activity"]] = percent
    nvml.gpm_returns[METRICS["dram_activity"]] = code
    sampler = a_sampler(nvml, time)
    sampler.start()
    time.now_s += 0.5
    reading = sampler.stop()
    assert reading.dram_activity is None
    assert reason in reading.missing["dram_activity"]
    assert reading.sm_activity == 0.9


def test_a_window_that_is_too_short_says_nothing() -> None:
    time = Time()
    sampler = a_sampler(FakeNvml(), time)
    sampler.start()
    time.now_s += 0.1
    reading = sampler.stop()
    assert set(reading.missing) == set(METRICS)
    assert reading.dram_activity is None


def test_gpus_without_gpm_old_drivers_and_slices_have_a_reason() -> None:
    nvml = FakeNvml()
    nvml.has_gpm = False
    without = open_gpm(nvml, "board", is_mig=False)
    assert isinstance(without, GpmUnavailable)
    assert "Hopper" in without.reason
    old = FakeNvml()
    del old._answers["nvmlGpmQueryDeviceSupport"]
    assert isinstance(open_gpm(old, "board", is_mig=False), GpmUnavailable)
    forbidden = open_gpm(FakeNvml(failing=["nvmlGpmSampleAlloc"]), "board", is_mig=False)
    assert forbidden == GpmUnavailable("Not Supported")
    assert isinstance(a_session(FakeNvml(uuid="MIG-77aa")).gpm, GpmUnavailable)


def test_the_read_kernel_is_the_measure_of_dram_activity() -> None:
    time = Time()
    sampler = a_sampler(FakeNvml(), time)
    reads: list[float] = []

    def read() -> None:
        reads.append(time.now_s)
        time.now_s += 0.1

    assert calibrate(sampler, read, lambda: None, seconds=0.6, now_s=time) == 0.7
    assert len(reads) >= 6
    shut = a_sampler(FakeNvml(failing=["nvmlGpmSampleGet"]), time)
    assert calibrate(shut, read, lambda: None, seconds=0.6, now_s=time) is None


@pytest.mark.parametrize("failing", EVERY_CALL)
@pytest.mark.parametrize("uuid", ["GPU-0b6e", "MIG-77aa"])
def test_a_round_survives_each_single_failing_call(failing: str, uuid: str) -> None:
    """Whatever fails, a session is opened or refused with a reason, and no number is made up."""
    nvml = FakeNvml(uuid=uuid, failing=[failing])
    session = open_nvml(uuid, nvml=nvml)
    if not isinstance(session, NvmlSession):
        assert session.reason
        return
    session.describe()
    session.start()
    telemetry = session.read()
    session.close()
    null = {
        name
        for name, value in telemetry.model_dump(exclude={"missing", "event_reasons"}).items()
        if value is None and name != "interval_s"
    }
    activities = set(METRICS) if "gpm" in telemetry.missing else set()
    assert null <= set(telemetry.missing) | activities
    assert not any(telemetry.model_dump()[name] == 0 for name in METRICS)


def test_without_a_start_nothing_is_said_about_an_interval() -> None:
    telemetry = a_session(FakeNvml()).read()
    assert telemetry.energy_j is None
    assert telemetry.interval_s is None
    assert telemetry.missing == {}
