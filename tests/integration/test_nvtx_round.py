"""A run that is asked for ranges: one more round has them, and no timed one."""

from types import SimpleNamespace
from typing import Any

import pytest

from llmprof.cli.app import execute
from llmprof.profiler import measure
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from tests.fakes import FakeNvtx
from tests.records import a_reading, a_run_record
from tests.zoo.pieces import tiny_ops
from tests.zoo.workload import PlantedWorkload

ROUNDS = 2


class Readings:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def read(self, time_s: float) -> Any:
        return a_reading(time_s)


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> FakeNvtx:
    found = FakeNvtx()
    monkeypatch.setattr("llmprof.session.open_ranges", lambda device: found)
    monkeypatch.setattr("llmprof.session.LiveCeilings", Readings)
    monkeypatch.setattr("llmprof.session.Canary", lambda: SimpleNamespace(read_hz=lambda: 3e9))
    monkeypatch.setattr(
        "llmprof.profiler.cached_ceilings", lambda *_, **__: a_run_record().ceilings
    )
    return found


def run(nvtx: FakeNvtx, *passes: str) -> RunRecord:
    def launch() -> None:
        if nvtx.open:
            nvtx.launch()

    piece = tiny_ops(1, "cpu")
    workload = PlantedWorkload([piece], device="cpu", threads=1, working_set_bytes=1 << 20)
    run_round = workload.run_round

    class Watched:
        def __init__(self, probe: Any) -> None:
            self._probe = probe

        def __getattr__(self, name: str) -> Any:
            return getattr(self._probe, name)

        def group_begin(self, group: Any) -> None:
            self._probe.group_begin(group)
            launch()

    workload.run_round = lambda probe: run_round(Watched(probe))  # type: ignore[method-assign]
    measured = {"rounds": ROUNDS, "warmup": 1, "passes": list(passes)}
    config = RunConfig.model_validate({"model": "planted", "measure": measured})
    return measure(workload, config, device="cpu", threads=1)


def test_one_more_round_has_ranges_and_is_not_kept(nvtx: FakeNvtx) -> None:
    record = run(nvtx, "clean", "nvtx")
    assert len(record.rounds) == ROUNDS
    assert len(nvtx.launched_in) == len(record.rounds[0].steps) > 0
    assert {one.partition("/")[0] for one in nvtx.launched_in} == {"llmprof.decode"}
    assert nvtx.open == []


def test_nobody_is_asked_for_ranges_without_the_pass(nvtx: FakeNvtx) -> None:
    run(nvtx, "clean")
    assert nvtx.launched_in == []


def test_on_a_cpu_it_is_refused_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["run", "llama-3.2-1b", "--random-weights", "--device", "cpu", "--nvtx"]) == 7
    assert "NVTX ranges mark kernels of a GPU" in capsys.readouterr().err
