"""Every exit code by every cause that the README names; gates run on arms without processes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from llmprof.cli.app import execute
from llmprof.errors import CapabilityError, MeasurementFailedError
from llmprof.store.runs import save_run
from tests.fake_arms import FakeMachine
from tests.records import QUIET, a_run_record

README = Path(__file__).parents[3] / "README.md"
WAITING = QUIET.model_copy(update={"worst_thread_fraction": 0.5})
GATE = ("gate", "run", "cand.yaml", "--base", "base.yaml", "-q")
ONE = "20261129T154500Z-a-b1-p512-1a2b3c40"
OTHER = "20261129T154501Z-a-b4-p512-1a2b3c41"
HEAVY = ("--random-weights", "-q", "--dtype", "fp32")
Arrange = Callable[[], object]


def text(name: str, content: str) -> Arrange:
    return lambda: Path(name).write_text(content)


def runs() -> None:
    """One run, and a younger one of other work."""
    save_run(a_run_record(rounds=6).model_copy(update={"id": ONE}))
    other = a_run_record(rounds=6)
    workload = other.settings.workload.model_copy(update={"batch": 4})
    settings = other.settings.model_copy(update={"workload": workload})
    save_run(other.model_copy(update={"settings": settings, "id": OTHER}))


def nothing() -> None:
    pass


CASES: tuple[tuple[int, str, FakeMachine | None, Arrange, tuple[str, ...]], ...] = (
    (0, "fine", None, nothing, ("schema",)),
    (0, "gate: nothing changed", FakeMachine(), nothing, GATE),
    (0, "gate: inconclusive", FakeMachine(noise=0.12), nothing, GATE),
    (1, "regression of a time", FakeMachine(slower=1.1), nothing, GATE),
    (
        1,
        "regression of a count",
        FakeMachine(counters={"cand.yaml": {"decode.ops_per_token": 305.0}}),
        nothing,
        GATE,
    ),
    (2, "missing file", None, nothing, ("compare", "missing.json", "@last")),
    (
        2,
        "corrupt file",
        None,
        text("run.json", '{"schema": "llmprof.run/1"'),
        ("report", "run.json"),
    ),
    (2, "bad field", None, text("x.yaml", "model: m\nworkload: {batch: 0}\n"), ("run", "x.yaml")),
    (2, "unknown key", None, text("x.yaml", "model: m\nwork: {batch: 1}\n"), ("run", "x.yaml")),
    (
        2,
        "prompt too long",
        None,
        nothing,
        ("run", "smollm2-135m", *HEAVY, "--prompt-tokens", "100000"),
    ),
    (2, "unwritable output", None, runs, ("report", ONE, "-o", "no/folder/x.html")),
    (2, "wrong option", None, nothing, ("ls", "--nothing")),
    (2, "no such model", None, nothing, ("predict", "llama-3.1-8")),
    (2, "arms that are alike", None, nothing, ("compare", "m", "--cand", "workload.batch=1")),
    (
        3,
        "inconclusive where asked",
        FakeMachine(noise=0.12),
        text("cand.yaml", "model: m\ngate: {on_inconclusive: fail}\n"),
        GATE,
    ),
    (4, "saved runs of other work", None, runs, ("compare", ONE, OTHER)),
    (4, "no baseline", None, runs, ("gate", "check", ONE)),
    (5, "unstable machine", FakeMachine(contention=WAITING), nothing, GATE),
    (6, "out of memory", FakeMachine(fails=MeasurementFailedError("out of memory")), nothing, GATE),
    (6, "wrong tokens", FakeMachine(outputs={"cand.yaml": "other"}), nothing, GATE),
    (
        7,
        "unsupported switch",
        None,
        nothing,
        ("run", "smollm2-135m", *HEAVY, "--set", "execution.mode=cuda_graph", "--device", "cpu"),
    ),
    (7, "unsupported architecture", None, nothing, ("run", "gpt2", *HEAVY)),
    (7, "larger than memory", None, nothing, ("run", "llama-3.1-405b", *HEAVY)),
    (7, "missing kernel of an arm", FakeMachine(fails=CapabilityError("no fp8")), nothing, GATE),
    (70, "bug", FakeMachine(fails=ZeroDivisionError("x")), nothing, GATE),
    (130, "interrupted", FakeMachine(fails=KeyboardInterrupt()), nothing, GATE),
)


@pytest.mark.parametrize(
    ("code", "machine", "arrange", "words"),
    [pytest.param(one[0], *one[2:], id=f"{one[0]}-{one[1]}") for one in CASES],
)
def test_a_code_has_its_cause_and_one_line(
    code: int,
    machine: FakeMachine | None,
    arrange: Arrange,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LLMPROF_DIR", str(tmp_path / "store"))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("llmprof.experiments.gate_arms.PAUSE_S", 0.0)
    for name in ("base", "cand"):
        Path(f"{name}.yaml").write_text("model: m\n")
    if machine is not None:
        monkeypatch.setattr("llmprof.experiments.gate_arms.ArmProcess", machine)
    arrange()
    assert execute(list(words)) == code
    out, err = capsys.readouterr()
    if code in (0, 1, 3, 5):  # a verdict is a result
        assert out
        assert "error" not in err
    else:
        assert out == ""
        last = err.splitlines()[-1]
        assert last.startswith("llmprof: ")
        assert "Traceback" not in err


def test_the_readme_documents_exactly_these_codes() -> None:
    table = README.read_text(encoding="utf-8").partition("| exit code | when |")[2]
    rows = table.partition("\n\n")[0].splitlines()[2:]
    documented = [int(code) for row in rows for code in re.findall(r"\d+", row.split("|")[1])]
    assert documented == sorted({one[0] for one in CASES})
