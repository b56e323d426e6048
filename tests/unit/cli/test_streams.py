import io

import pytest
from rich.console import Console

from llmprof.cli import streams
from llmprof.schema.diagnosis import Check
from llmprof.store.progress import NullProgress, Progress


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def report_on(progress: Progress) -> None:
    progress.note("loading [bold]m[/bold]")
    progress.update("rounds", 0, 2)
    progress.update("rounds", 2, 2)


def test_without_a_terminal_each_event_is_one_plain_line_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with streams.progress_on_stderr(quiet=False) as progress:
        report_on(progress)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "llmprof: loading [bold]m[/bold]",
        "llmprof: rounds 0/2",
        "llmprof: rounds 2/2",
    ]


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with streams.progress_on_stderr(quiet=True) as progress:
        assert isinstance(progress, NullProgress)
        report_on(progress)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_a_bar_moves_only_when_something_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console = terminal()
    monkeypatch.setattr(streams, "progress_console", lambda: console)
    with streams.progress_on_stderr(quiet=False) as progress:
        report_on(progress)
        assert "2/2" in written(console)
        # No thread may repaint, and wake up, while a step is being timed.
        assert isinstance(progress, streams.BarProgress)
        assert not progress.bar.live.auto_refresh
    assert "loading [bold]m[/bold]" in written(console)


def test_a_long_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with streams.progress_on_stderr(quiet=False) as progress:
        progress.note("x" * 500)
    assert capsys.readouterr().err.count("\n") == 1


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert streams.result_console().no_color
    assert streams.progress_console().no_color


def test_a_json_document_is_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    streams.print_json(Check(name="größe", status="ok", detail="d"))
    assert capsys.readouterr().out == (
        '{\n  "name": "größe",\n  "status": "ok",\n  "detail": "d",\n  "remedy": null\n}\n'
    )


@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("19", 80), ("20", 20), ("140", 140)])
def test_a_width_that_holds_nothing_is_not_believed(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert streams.result_console().width == width


def test_a_name_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    with streams.progress_on_stderr(quiet=False) as progress:
        progress.note("loading \x1b[2Jm")
    assert capsys.readouterr().err == "llmprof: loading \\x1b[2Jm\n"
