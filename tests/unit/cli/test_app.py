import errno
from collections.abc import Sequence

import pytest
import typer

from llmprof import __version__
from llmprof.cli import app as shell
from llmprof.cli import program
from llmprof.cli.app import execute
from llmprof.errors import (
    CapabilityError,
    InputError,
    LlmprofError,
    MeasurementFailedError,
    NotComparableError,
    UnstableMachineError,
)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMPROF_DEBUG", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERMINAL_WIDTH", "100")


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def invoke(arguments: Sequence[str]) -> None:
        raise error

    monkeypatch.setattr(shell, "_invoke", invoke)


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (InputError("no file x", remedy="Give one"), "error: no file x. Give one", 2),
        (InputError("two\nlines"), "error: two lines", 2),
        (NotComparableError("unlike"), "error: unlike", 4),
        (UnstableMachineError("noisy"), "error: noisy", 5),
        (MeasurementFailedError("out of memory"), "error: out of memory", 6),
        (CapabilityError("no fp8"), "error: no fp8", 7),
        (LlmprofError("odd"), "error: odd", 70),
        (InputError("\x1b[2Jgone\u202e"), r"error: \x1b[2Jgone\u202e", 2),
        (KeyboardInterrupt(), "interrupted", 130),
        (KeyboardInterrupt("the run is saved in x"), "interrupted: the run is saved in x", 130),
        (
            BaseException("a panic of Rust"),
            "internal error: BaseException: a panic of Rust. Run it again with --debug to see where",
            70,
        ),
        (
            ZeroDivisionError("division\nby zero"),
            "internal error: ZeroDivisionError: division by zero."
            " Run it again with --debug to see where",
            70,
        ),
        (
            AssertionError(),
            "internal error: AssertionError. Run it again with --debug to see where",
            70,
        ),
    ],
)
def test_every_error_is_one_line_and_a_code(
    error: BaseException,
    line: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fail_with(error, monkeypatch)
    assert execute(["ls"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"llmprof: {line}\n"


def test_a_command_may_choose_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    own = typer.Typer()

    @own.command()
    def gate() -> None:
        raise typer.Exit(3)

    monkeypatch.setattr(program, "app", own)
    assert execute([]) == 3


def test_an_aborted_command_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    own = typer.Typer()

    @own.command()
    def ask() -> None:
        raise typer.Abort

    monkeypatch.setattr(program, "app", own)
    assert execute([]) == 130


@pytest.mark.parametrize("arguments", [["--debug", "ls"], ["ls", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(ZeroDivisionError("x"), monkeypatch)
    assert execute(arguments) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False)])
def test_debug_from_the_environment(
    value: str, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLMPROF_DEBUG", value)
    fail_with(InputError("x"), monkeypatch)
    assert execute(["ls"]) == 2
    assert ("Traceback" in capsys.readouterr().err) is shown


def test_what_follows_two_dashes_is_no_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(InputError("x"), monkeypatch)
    assert execute(["ls", "--", "--debug"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nonsense"], "llmprof: error: No such command 'nonsense'. See 'llmprof --help'\n"),
        (["--nonsense"], "llmprof: error: No such option: --nonsense. See 'llmprof --help'\n"),
        (
            ["schema", "run", "more"],
            "llmprof: error: Got unexpected extra argument(s) (more). See 'llmprof schema --help'\n",
        ),
    ],
)
def test_a_wrong_call_is_one_line_with_where_to_look(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.replace("argument (more)", "argument(s) (more)")) == ("", line)


def test_ceilings_refuse_a_number_of_processes_that_nothing_uses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["ceilings", "--processes", "4"]) == 2
    assert "--processes 4 is about the collectives" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        (["run", "some-model", "--confirm"], "--confirm weights.quantization=int8"),
        (["report", "@last", "-o"], "-o report.html"),
    ],
)
def test_an_option_without_its_value_is_answered_with_one(
    arguments: list[str], example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"For example {example}; see 'llmprof {arguments[0]} --help'" in line


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out == f"llmprof {__version__}\n"
    for arguments in ([], ["--help"]):
        assert execute(arguments) == 0
        text = capsys.readouterr().out
        assert "70 bug, 130 interrupted" in " ".join(text.split())
        for command in (
            "run",
            "inspect",
            "generate",
            "ceilings",
            "report",
            "doctor",
            "ls",
            "schema",
        ):
            assert f" {command} " in text


@pytest.mark.parametrize(
    "error", [BrokenPipeError(errno.EPIPE, "Broken pipe"), SystemExit(1)], ids=["plain", "by rich"]
)
def test_a_reader_that_left_is_no_failure(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if isinstance(error, SystemExit):
        error.__context__ = BrokenPipeError(errno.EPIPE, "Broken pipe")
    fail_with(error, monkeypatch)
    assert execute(["ls"]) == 0
    assert capfd.readouterr().err == ""


def test_an_exit_of_somebody_else_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(SystemExit(9), monkeypatch)
    with pytest.raises(SystemExit) as caught:
        execute(["ls"])
    assert caught.value.code == 9
