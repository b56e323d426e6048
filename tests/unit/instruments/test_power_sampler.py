"""Power over time, from a sensor and a clock that the test moves."""

import threading

import pytest

from llmprof.instruments.power_sampler import PowerSampler
from tests.fakes import FakeClock


def a_sampler(clock: FakeClock, *answers: float | None, period_s: float = 60.0) -> PowerSampler:
    """Whose thread never comes to a reading: the test takes them."""
    left = iter(answers)
    return PowerSampler(lambda: next(left), now_s=lambda: clock.now_ns() / 1e9, period_s=period_s)


def test_energy_is_the_area_below_the_readings() -> None:
    """(100 + 300) / 2 W for 60 s, then 300 W for 40 s; a reading that fails leaves no hole."""
    clock = FakeClock()
    sampler = a_sampler(clock, 100.0, 300.0, None, 300.0)
    sampler.start()
    for seconds in (60, 30):
        clock.advance(seconds * 10**9)
        sampler.sample()
    clock.advance(10 * 10**9)
    found = sampler.stop()
    assert found is not None
    assert (found.energy_j, found.interval_s, found.samples) == (12_000 + 12_000, 100.0, 3)


def test_a_window_shorter_than_the_time_between_readings_has_none() -> None:
    clock = FakeClock()
    sampler = a_sampler(clock, 100.0, 100.0)
    sampler.start()
    clock.advance(59 * 10**9)
    assert sampler.stop() is None


@pytest.mark.parametrize("answers", [(None, None), (None, 100.0)])
def test_without_two_readings_there_is_none(answers: tuple[float | None, ...]) -> None:
    sampler = a_sampler(FakeClock(), *answers)
    sampler.start()
    assert sampler.stop() is None


def test_the_thread_reads_until_it_is_stopped() -> None:
    read = threading.Semaphore(0)

    def answer() -> float:
        read.release()
        return 100.0

    sampler = PowerSampler(answer, period_s=0.001)
    sampler.start()
    for _ in range(3):
        assert read.acquire(timeout=10)
    found = sampler.stop()
    assert found is not None
    assert found.samples >= 3
    assert found.energy_j == pytest.approx(100.0 * found.interval_s)
    assert not any(one.name == "power-sampler" for one in threading.enumerate())
