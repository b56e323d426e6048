"""The clock during a round: read by a thread, kept apart from what is read after it."""

import threading

import pytest

from llmprof.instruments.clock_sampler import MOST_SAMPLES, ClockSampler
from llmprof.instruments.nvml import NvmlSession, NvmlUnavailable, open_nvml
from llmprof.instruments.sensors import Sensors
from tests.fakes import FakeClock, FakeNvml, FakeNvmlError


def a_sampler(clock: FakeClock, *answers: float | None) -> ClockSampler:
    left = iter(answers)
    return ClockSampler(lambda: next(left), origin_ns=1_000_000_000, now_ns=clock.now_ns)


def test_a_sample_is_stamped_since_the_start_of_the_run() -> None:
    clock = FakeClock(1_500_000_000)
    sampler = a_sampler(clock, 1.8e9, None, 1.4e9)
    for _ in range(3):
        sampler.sample()
        clock.advance(50_000_000)
    found = sampler.stop().samples
    assert [(one.time_s, one.sm_clock_hz) for one in found] == [(0.5, 1.8e9), (0.6, 1.4e9)]


def test_a_long_round_keeps_samples_of_all_of_it() -> None:
    clock = FakeClock(1_000_000_000)
    sampler = a_sampler(clock, *[1e9] * (MOST_SAMPLES + 1))
    for _ in range(MOST_SAMPLES + 1):
        sampler.sample()
        clock.advance(50_000_000)
    times_s = [one.time_s for one in sampler.stop().samples]
    assert len(times_s) == MOST_SAMPLES // 2 + 1
    assert times_s[:3] == [0.0, 0.1, 0.2]
    assert times_s[-1] == pytest.approx(0.05 * MOST_SAMPLES)


def test_the_thread_reads_until_it_is_stopped_and_starts_anew() -> None:
    read = threading.Semaphore(0)

    def answer() -> float:
        read.release()
        return 1.8e9

    sampler = ClockSampler(answer, origin_ns=0, period_s=0.001)
    for _ in range(2):
        sampler.start()
        assert read.acquire(timeout=10)
        clock = sampler.stop()
        assert clock.samples
        assert clock.cpu_s > 0
    assert not any(one.name == "clock-sampler" for one in threading.enumerate())


def sensors(nvml: FakeNvml) -> Sensors:
    session = open_nvml(nvml.uuid, nvml=nvml)
    assert isinstance(session, NvmlSession)
    return Sensors(session, 0, period_s=60.0)


def test_a_round_that_is_too_short_for_a_sample_says_so() -> None:
    found = sensors(FakeNvml())
    with found.during():
        pass
    telemetry = found.read()
    assert telemetry is not None
    assert telemetry.sm_clock_samples == ()
    assert "60.0 s" in telemetry.missing["sm_clock_samples"]
    assert found.sm_clock_hz() == telemetry.sm_clock_hz == 1.755e9


def test_a_clock_that_cannot_be_read_is_the_reason() -> None:
    found = sensors(FakeNvml(failing=["nvmlDeviceGetClockInfo"]))
    with found.during():
        pass
    telemetry = found.read()
    assert telemetry is not None
    assert telemetry.missing["sm_clock_samples"] == "Not Supported"
    assert found.sm_clock_hz() is None


def test_a_round_that_fails_leaves_no_thread() -> None:
    found = sensors(FakeNvml())
    with pytest.raises(KeyboardInterrupt), found.during():
        raise KeyboardInterrupt
    assert not any(one.name == "clock-sampler" for one in threading.enumerate())


def test_power_is_sampled_where_the_device_says_that_it_counts_no_energy() -> None:
    """Another failure of the counter may pass, and says nothing about the device."""
    counter, power = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"
    assert sensors(FakeNvml(failing=[counter])).power_sampler() is not None
    assert sensors(FakeNvml(failing=[counter, power])).power_sampler() is None
    assert sensors(FakeNvml()).power_sampler() is None
    nvml = FakeNvml()

    def fail(handle: str) -> None:
        raise FakeNvmlError("Unknown Error")

    nvml._answers[counter] = fail
    assert sensors(nvml).power_sampler() is None
    assert Sensors(None, 0).power_sampler() is None


def test_who_counts_energy() -> None:
    assert sensors(FakeNvml()).counts_energy()
    assert not sensors(FakeNvml(failing=["nvmlDeviceGetTotalEnergyConsumption"])).counts_energy()
    for without in (None, NvmlUnavailable("no library")):
        assert not Sensors(without, 0).counts_energy()
        assert Sensors(without, 0).sm_clock_hz() is None
