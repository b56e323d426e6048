"""The command line as a person meets it: one line, an exit code, nothing heavy imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmprof.cli.app import execute
from llmprof.store.runs import save_run
from tests.records import a_run_record

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "numba", "gguf", "jinja2", "pynvml")


pytestmark = pytest.mark.usefixtures("in_a_fresh_folder")


def llmprof(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    program = code or "from llmprof.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"NO_COLOR": "1", "TERMINAL_WIDTH": "100"},
    )


def test_the_light_commands_import_nothing_heavy() -> None:
    save_run(a_run_record(rounds=2, grouped_rounds=1))
    program = (
        "import sys\n"
        "from llmprof.cli.app import execute\n"
        "for words in ('--help', '--version', 'ls', 'schema run', 'run --help', 'report --help'):\n"
        "    assert execute(words.split()) == 0\n"
        f"    heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    assert not heavy, (words, heavy)\n"
    )
    done = llmprof(code=program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_model_that_is_not_there_is_refused_before_torch_is_imported() -> None:
    program = (
        "import sys\n"
        "from llmprof.cli.app import execute\n"
        "changed = ['--base', 'workload.batch=1', '--cand', 'workload.batch=2']\n"
        "told = ['--prompt', 'Once']\n"
        "for words in (['run', 'nosuch'], ['sweep', 'nosuch', '--grid', 'workload.batch=1,2'],\n"
        "              ['compare', 'nosuch', *changed], ['generate', 'nosuch', *told],\n"
        "              ['quality', 'nosuch'], ['run', 'llama-3.1-8b']):\n"
        "    assert execute(words) == 2, words\n"
        "    assert 'torch' not in sys.modules, words\n"
    )
    done = llmprof(code=program)
    assert done.returncode == 0, done.stderr
    *missing, without = done.stderr.splitlines()
    assert len(missing) == 5
    assert all("'nosuch' is no file, folder, hub id" in line for line in missing)
    assert "is a configuration without weights" in without


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "predict",
        "inspect",
        "generate",
        "ceilings",
        "report",
        "doctor",
        "ls",
        "schema",
    ],
)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert f"llmprof {command}" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["run"], "Missing argument"),
        (["run", "absent.yaml"], "settings file absent.yaml does not exist"),
        (["run", "typo.yaml"], "typo.yaml:3: unknown key 'workload.batchs'. Did you mean"),
        (
            ["run", "m", "--set", "weights.dtype=fp7"],
            "weights.dtype is 'fp7'. Expected 'as_stored'",
        ),
        (["run", "m", "--batch", "0"], "'--batch'"),
        (["run", "m", "-o", "absent/report.html"], "folder absent does not exist. Create it"),
        (["run", "m", "-o", "taken.html"], "taken.html exists. Give --force to overwrite it"),
        (["report", "@last"], "no run '@last': .llmprof/runs holds none"),
        (["report", "damaged.json"], "damaged.json is truncated or no JSON"),
        (["schema", "nothing"], "no document 'nothing'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("typo.yaml").write_text("model: m\nworkload:\n  batchs: 1\n")
    Path("taken.html").write_text("x")
    Path("damaged.json").write_text('{"schema": "llmprof.run/1", "id":')
    assert execute(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("llmprof: error: ")
    assert problem in err
    assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "llmprof", "schema", "run"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "llmprof: error: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        ("2>/dev/full", 2),
        ("2>&-", 2),
        (">&- 2>&-", 2),
        ("<&- >&- 2>&-", 2),
        (">/dev/full 2>&1", 2),
        ("2>&1 | head -c 0", 2),
    ],
)
def test_an_error_that_nobody_can_read_keeps_its_code(redirection: str, code: int) -> None:
    command = f'"{sys.executable}" -m llmprof schema nothing {redirection}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.parametrize("stream", [">&-", "2>&-", "2>/dev/full"])
def test_a_result_needs_no_stderr_and_a_closed_stdout_is_no_bug(stream: str) -> None:
    command = f'"{sys.executable}" -m llmprof ls {stream}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_while_the_commands_are_imported_is_one_line() -> None:
    program = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from llmprof.cli.app import main; main()"
    )
    done = llmprof("ls", code=program)
    assert (done.returncode, done.stderr) == (130, "llmprof: interrupted\n")


@pytest.mark.parametrize("arguments", [["schema", "report"], ["--help"]])
def test_a_reader_that_stops_reading_is_no_failure(arguments: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "llmprof", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_a_saved_run_is_listed_by_the_installed_command() -> None:
    save_run(a_run_record(rounds=2, grouped_rounds=1))
    done = llmprof("ls")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1a2b3c4d" in done.stdout


def test_a_terminal_without_unicode_gets_question_marks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llmprof", "--help"],
        capture_output=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"},
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert b"Exit codes" in done.stdout
