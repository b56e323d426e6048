from pathlib import Path

import pytest

from llmprof.instruments.contention import ContentionMeter
from tests.fakes import FakeClock
from tests.unit.instruments.system_tree import write_tree


def write_counters(
    root: Path,
    *,
    waited_ns: dict[str, int],
    on_cpu_ns: dict[str, int] | None = None,
    stat: str = "cpu  100 0 50 800 20 0 10 20 0 0",
    pressure_us: int = 0,
) -> None:
    proc = root / "proc"
    for folder in (proc / "pressure", *(proc / "self/task" / thread for thread in waited_ns)):
        folder.mkdir(parents=True, exist_ok=True)
    for thread, ns in waited_ns.items():
        on_cpu = (on_cpu_ns or {}).get(thread, 0)
        (proc / "self/task" / thread / "schedstat").write_text(f"{on_cpu} {ns} 7\n")
    (proc / "stat").write_text(f"{stat}\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    (proc / "pressure/cpu").write_text(
        f"some avg10=1.00 avg60=0.50 avg300=0.10 total={pressure_us}\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )


def test_fractions_of_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_ns = iter([0, 1_000_000_000, 1_150_000_000])  # at construction, start and stop
    monkeypatch.setattr("time.process_time_ns", lambda: next(cpu_ns))
    clock = FakeClock()
    write_counters(tmp_path, waited_ns={"10": 5_000_000, "11": 1_000_000, "12": 4})
    meter = ContentionMeter(2, clock=clock, root=tmp_path)
    meter.start()
    clock.advance(100_000_000)
    # Thread 10 waited 6 ms, 11 not at all, 13 is new and waited 4 ms, 12 has ended.
    write_counters(
        tmp_path,
        waited_ns={"10": 11_000_000, "11": 1_000_000, "13": 4_000_000},
        stat="cpu  115 0 50 801 20 0 10 24 0 0",
        pressure_us=30_000,
    )
    (tmp_path / "proc/self/task/12/schedstat").unlink()
    contention = meter.stop()
    assert contention.run_queue_fraction == pytest.approx(0.010 / 0.200)
    assert contention.cpu_per_wall == pytest.approx(0.150 / 0.200)
    assert contention.steal_fraction == pytest.approx(4 / 20)
    assert contention.pressure_fraction == pytest.approx(0.3)
    assert contention.canary_hz is None


def test_a_system_that_tells_nothing_gives_null_and_not_zero(tmp_path: Path) -> None:
    clock = FakeClock()
    meter = ContentionMeter(2, clock=clock, root=tmp_path)
    meter.start()
    clock.advance(1_000_000)
    contention = meter.stop()
    assert contention.run_queue_fraction is None
    assert contention.worst_thread_fraction is None
    assert contention.steal_fraction is None
    assert contention.pressure_fraction is None
    assert contention.cpu_per_wall is not None


def test_no_tick_has_passed(tmp_path: Path) -> None:
    write_counters(tmp_path, waited_ns={"10": 0})
    clock = FakeClock()
    meter = ContentionMeter(1, clock=clock, root=tmp_path)
    clock.advance(1_000_000)
    assert meter.stop().steal_fraction is None, "the tick counters stood still: not known"


def test_old_kernel_without_steal(tmp_path: Path) -> None:
    write_counters(tmp_path, waited_ns={"10": 0}, stat="cpu  100 0 50 800")
    assert ContentionMeter(1, root=tmp_path).stop().steal_fraction is None


def test_the_worst_thread_is_told_apart_from_the_mean(tmp_path: Path) -> None:
    """Of four threads one waited 12 % of the time; all together they waited 3.5 %."""
    clock = FakeClock()
    write_counters(tmp_path, waited_ns=dict.fromkeys(["10", "11", "12", "13"], 0))
    meter = ContentionMeter(4, clock=clock, root=tmp_path)
    meter.start()
    clock.advance(100_000_000)
    write_counters(
        tmp_path,
        waited_ns={"10": 12_000_000, "11": 1_000_000, "12": 1_000_000, "13": 0},
        on_cpu_ns=dict.fromkeys(["10", "11", "12", "13"], 85_000_000),
    )
    contention = meter.stop()
    assert contention.worst_thread_fraction == pytest.approx(0.12)
    assert contention.run_queue_fraction == pytest.approx(0.014 / 0.4)


def test_a_thread_that_hardly_works_is_no_worst_thread(tmp_path: Path) -> None:
    """A sampler that queues behind the workers for 7 ms of 100: no barrier waits for it."""
    clock = FakeClock()
    write_counters(tmp_path, waited_ns={"10": 0, "11": 0})
    meter = ContentionMeter(1, clock=clock, root=tmp_path)
    meter.start()
    clock.advance(100_000_000)
    write_counters(
        tmp_path,
        waited_ns={"10": 2_000_000, "11": 7_000_000},
        on_cpu_ns={"10": 97_000_000, "11": 1_000_000},
    )
    contention = meter.stop()
    assert contention.worst_thread_fraction == pytest.approx(0.02)
    assert contention.run_queue_fraction == pytest.approx(0.09)


def write_quota(root: Path, *, used_up: int, periods: int, cpu_max: str = "150000 100000") -> None:
    write_tree(
        root,
        {
            "proc/self/cgroup": "0::/job",
            "sys/fs/cgroup/job/cpu.max": cpu_max,
            "sys/fs/cgroup/job/cpu.stat": f"nr_periods {periods}\nnr_throttled {used_up}",
        },
    )


def test_periods_in_which_the_quota_was_used_up(tmp_path: Path) -> None:
    """3 of the 4 periods of a container with 1.5 CPUs."""
    write_quota(tmp_path, used_up=7, periods=100)
    meter = ContentionMeter(2, root=tmp_path)
    meter.start()
    write_quota(tmp_path, used_up=10, periods=104)
    assert meter.stop().quota_used_up_fraction == pytest.approx(0.75)


def test_without_a_quota_or_a_whole_period_nothing_was_used_up(tmp_path: Path) -> None:
    write_quota(tmp_path, used_up=0, periods=0, cpu_max="max 100000")
    assert ContentionMeter(2, root=tmp_path).stop().quota_used_up_fraction is None
    write_quota(tmp_path, used_up=7, periods=100)
    assert ContentionMeter(2, root=tmp_path).stop().quota_used_up_fraction is None
