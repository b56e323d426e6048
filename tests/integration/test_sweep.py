"""`llmprof sweep` from the command line, killed in the middle, on a small random model."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmprof.architectures.source import ModelSource
from llmprof.cli.app import execute
from llmprof.engine.engine import Engine
from llmprof.schema.settings import RunConfig
from llmprof.schema.sweep import CellMetrics, CellStatus, Sweep
from llmprof.store.documents import read_document
from llmprof.store.runs import find_run, run_files
from llmprof.store.sweeps import sweep_lock

PROGRAM = (
    "import llmprof.profiler as p, llmprof.experiments.sweep_plan as s;"
    "from tests.records import a_run_record;"
    "c = a_run_record().ceilings;"
    "p.cached_ceilings = s.cached_ceilings = lambda *_, **__: c;"
    "from llmprof.cli.app import main; main()"
)
SMALL = ("--threads", "1", "--set", "workload.output_tokens=4", "--set", "measure.warmup=1")
SHORT = ("--set", "workload.prompt_tokens=8")
CELLS = ("--grid", "workload.batch=1,2,4", "--grid", "workload.prompt_tokens=8,16", "--rounds", "2")


pytestmark = pytest.mark.usefixtures("known_ceilings")


def started(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "sweep", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"ended without a word of {text!r}")


def saved_sweep() -> Sweep:
    (file,) = Path(".llmprof/sweeps").glob("*.json")
    return read_document(file, Sweep)[0]


def test_kill_9_loses_no_finished_cell_and_the_same_command_goes_on(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = started(tmp_path, tiny, *CELLS, *SMALL)
    wait_for(process, "cell 4 of 6")
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    before = saved_sweep()
    measured = [cell for cell in before.cells if cell.status is CellStatus.MEASURED]
    assert len(measured) == 3

    assert execute(["sweep", tiny, *CELLS, *SMALL, "--json"]) == 0
    out, err = capsys.readouterr()
    after = Sweep.model_validate_json(out)
    assert "3 of 6 cells were measured before" in err
    assert after.status == "complete"
    for cell in measured:
        assert after.cells[cell.index] == cell
    assert len(run_files()) == 6
    assert all(find_run(cell.run_ids[0]).status == "complete" for cell in after.cells)


def test_an_interrupt_is_130_and_the_table_of_what_is_there(tiny: str, tmp_path: Path) -> None:
    many = ("--rounds", "5000", "--grid", "workload.batch=1,2", "--set", "workload.prompt_tokens=8")
    process = started(tmp_path, tiny, *many, *SMALL)
    wait_for(process, "rounds 3/5000")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "PARTIAL SWEEP: interrupted after 0 of 2 cells" in out
    assert [cell.status for cell in saved_sweep().cells] == [CellStatus.PARTIAL, CellStatus.PENDING]


def test_a_second_process_on_one_sweep_is_refused_and_goes_on_after_the_first(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", tiny, "--grid", "workload.batch=1", "--rounds", "1", *SMALL, "-q"]
    words += ["--set", "workload.prompt_tokens=8"]
    assert execute(words) == 0
    identifier = saved_sweep().id
    capsys.readouterr()
    with sweep_lock(identifier):
        assert execute([*words, "--fresh"]) == 2
        printed = capsys.readouterr()
        assert "another process measures this sweep" in printed.err
        assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert execute([*words, "--json"]) == 0


def test_a_row_that_cannot_run_has_its_reason_and_every_format_is_written(
    tiny: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A machine that is busy with other tests may disturb every round, and then no batch is named.
    monkeypatch.setattr(CellMetrics, "disturbed", False)
    config = tmp_path / "sweep.yaml"
    config.write_text(
        f"model: {tiny}\nexecution: {{threads: 1}}\nworkload: {{output_tokens: 3}}\n"
        "measure: {warmup: 1, rounds: 2}\n"
        "sweep: {grid: {workload.prompt_tokens: [8, 100000], workload.batch: 1-2*2}}\n"
    )
    names = [f"out.{suffix}" for suffix in ("html", "md", "csv", "json", "png", "svg", "pdf")]
    outputs = [word for name in names for word in ("-o", name)]
    assert execute(["sweep", str(config), *outputs, "--tpot-max", "10s", "-q"]) == 0
    out = capsys.readouterr().out
    assert "100000 prompt tokens" in out
    assert "batch 2 at most" in out
    assert all(Path(name).stat().st_size > 500 for name in names)
    assert json.loads(Path("out.json").read_text())["schema"] == "llmprof.sweep/1"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "a sweep needs an axis"),
        (("--grid", "workload.batch=4-1"), 2, "the range 4-1 is empty"),
        (("--grid", "workload.batch=1", "--tpot-max", "50"), 2, "--tpot-max 50 is no time"),
        (
            ("--grid", "workload.prompt_tokens=8,16", "--tpot-max", "50ms"),
            2,
            "the grid has no axis of batches",
        ),
        (("--grid", "workload.batch=1", "-o", "x.xlsx"), 2, "no sweep format"),
        (("--grid", "workload.prompt_tokens=100000"), 2, "no cell was measured"),
        (("--grid", "execution.fused=on", *SHORT), 7, "no cell was measured"),
    ],
)
def test_exit_codes(
    tiny: str,
    arguments: tuple[str, ...],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["sweep", tiny, *arguments, *SMALL]) == code
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


def test_cells_of_the_same_weights_load_them_once(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded: list[tuple[str, int]] = []

    def counted(source: ModelSource, config: RunConfig, **others: Any) -> Engine:
        loaded.append((config.weights.dtype.value, config.workload.batch))
        return load(source, config, **others)

    load = Engine.load
    monkeypatch.setattr(Engine, "load", counted)
    grid = ("workload.batch=1,2", "attention.kind=flash,standard", "kv_cache.layout=paged,none")
    words = [word for axis in grid for word in ("--grid", axis)]
    words += ["--set", "workload.prompt_tokens=8", "--rounds", "1", "-q", *SMALL]
    assert execute(["sweep", tiny, *words]) == 0, capsys.readouterr()
    assert len(loaded) == 1
    assert [cell.status.value for cell in saved_sweep().cells] == ["measured"] * 8
    records = [find_run(str(file)) for file in run_files()]
    reserved = {
        record.settings.kv_cache.layout.value: record.engine.kv_bytes_reserved > 0
        for record in records
    }
    assert reserved == {"paged": True, "none": False}
