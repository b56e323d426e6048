from datetime import timedelta
from pathlib import Path

import pytest
import torch

from llmprof.ceilings import measure, pool
from llmprof.ceilings.measure import cached_ceilings, measure_ceilings
from llmprof.instruments.host_memory import HostMemory
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.environment import Environment
from llmprof.schema.measurement import Caveat
from llmprof.store.progress import NullProgress
from tests.unit.ceilings.factories import MIB, NOON, a_cpu, a_gpu, l2, l3, some_ceilings

MACHINE = a_cpu(l2(MIB // 2), l3(8 * MIB), fingerprint="a" * 12)


class Measurements:
    """Stands in for the measuring: counts, and returns ceilings of the machine asked for."""

    def __init__(self) -> None:
        self.count = 0
        self.measured_at = NOON
        self.caveats: tuple[Caveat, ...] = ()

    def __call__(self, environment: Environment, device: str, **options: object) -> Ceilings:
        self.count += 1
        return some_ceilings(environment, measured_at=self.measured_at, caveats=self.caveats)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measurements:
    monkeypatch.setenv("LLMPROF_CACHE_DIR", str(tmp_path))
    measurements = Measurements()
    monkeypatch.setattr(measure, "measure_ceilings", measurements)
    return measurements


def test_ceilings_are_measured_once(measured: Measurements) -> None:
    first = cached_ceilings(MACHINE, "cpu", now=NOON)
    assert cached_ceilings(MACHINE, "cpu", now=NOON + timedelta(days=29)) == first
    assert measured.count == 1


def test_refresh_measures_again(measured: Measurements) -> None:
    cached_ceilings(MACHINE, "cpu", now=NOON)
    measured.measured_at = NOON + timedelta(hours=1)
    again = cached_ceilings(MACHINE, "cpu", refresh=True, now=NOON)
    assert again.measured_at == measured.measured_at
    assert cached_ceilings(MACHINE, "cpu", now=measured.measured_at) == again
    assert measured.count == 2


@pytest.mark.parametrize("age", [timedelta(days=31), timedelta(days=-1)])
def test_old_ceilings_and_those_of_the_future_expire(
    measured: Measurements, age: timedelta
) -> None:
    cached_ceilings(MACHINE, "cpu", now=NOON)
    cached_ceilings(MACHINE, "cpu", now=NOON + age)
    assert measured.count == 2


def test_disturbed_ceilings_expire_after_an_hour(measured: Measurements) -> None:
    measured.caveats = (Caveat(code="ceilings-contended", message="busy"),)
    cached_ceilings(MACHINE, "cpu", now=NOON)
    cached_ceilings(MACHINE, "cpu", now=NOON + timedelta(minutes=59))
    assert measured.count == 1
    cached_ceilings(MACHINE, "cpu", now=NOON + timedelta(minutes=61))
    assert measured.count == 2


@pytest.mark.parametrize(
    "change",
    [{"versions": {"torch": "2.14.0"}}, {"threads": 1}, {"fingerprint": "b" * 12}],
)
def test_other_software_or_threads_are_measured_anew(
    measured: Measurements, change: dict[str, object]
) -> None:
    cached_ceilings(MACHINE, "cpu", now=NOON)
    cached_ceilings(MACHINE.model_copy(update=change), "cpu", now=NOON)
    assert measured.count == 2


def test_two_equal_gpus_have_their_own(measured: Measurements) -> None:
    cached_ceilings(a_gpu(uuid="GPU-1"), "cuda:0", now=NOON)
    cached_ceilings(a_gpu(uuid="GPU-2"), "cuda:0", now=NOON)
    assert measured.count == 2


EMPTY = some_ceilings(MACHINE, measured_at=NOON).model_copy(update={"bandwidth": ()})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"schema": "llmprof.ceilings/1"}',
        b"\xff\x00",
        EMPTY.model_dump_json().encode(),
    ],
    ids=["empty", "cut", "bare", "bytes", "no-bandwidth"],
)
def test_a_corrupt_cache_is_said_and_measured_again(
    measured: Measurements, tmp_path: Path, content: bytes
) -> None:
    cached_ceilings(MACHINE, "cpu", now=NOON)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_bytes(content)
    again = cached_ceilings(MACHINE, "cpu", now=NOON)
    assert [caveat.code for caveat in again.caveats] == ["ceilings-cache-corrupt"]
    assert cached_ceilings(MACHINE, "cpu", now=NOON).caveats == ()
    assert measured.count == 2


def test_a_quick_measurement_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, short_reads: None
) -> None:
    monkeypatch.setattr(pool, "host_memory", lambda: HostMemory(1 << 34, 256 * MIB))
    monkeypatch.setattr(measure, "_BANDWIDTH_S", 1.0)
    monkeypatch.setattr(measure, "_MATMUL_S", 1.0)
    threads = torch.get_num_threads()
    stages: list[tuple[str, int, int]] = []

    class Listener(NullProgress):
        def update(self, stage: str, done: int, total: int) -> None:
            stages.append((stage, done, total))

    one_thread = MACHINE.model_copy(update={"threads": 1})
    ceilings = measure_ceilings(one_thread, "cpu", quick=True, progress=Listener())
    assert {ceiling.level for ceiling in ceilings.bandwidth} >= {"L2", "DRAM"}
    assert [ceiling.dtype for ceiling in ceilings.compute] == ["fp32", "bf16", "fp16", "int8"]
    assert ceilings.fixed_cost.alpha_s > 0
    assert ceilings.environment.threads == 1
    assert torch.get_num_threads() == threads
    assert stages[-1] == ("matmuls", 4, 4)
    assert Ceilings.model_validate_json(ceilings.model_dump_json(by_alias=True)) == ceilings


def test_waiting_for_a_core_is_a_caveat(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.records import QUIET

    assert measure._about_contention(QUIET) == ()
    unknown = QUIET.model_copy(update={"run_queue_fraction": None})
    assert measure._about_contention(unknown) == ()
    busy = QUIET.model_copy(update={"run_queue_fraction": 0.31})
    (caveat,) = measure._about_contention(busy)
    assert caveat.code == "ceilings-contended"
    assert "31 %" in caveat.message
