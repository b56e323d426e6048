"""The terminal summary: what it says, that it fits, and that nothing breaks it."""

import io
import os
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from llmprof.renderers.run_text import SCREEN_LINES, render_run, run_text
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.ledger import Part
from llmprof.schema.measurement import Caveat
from llmprof.schema.report import Report
from tests.unit.renderers import degenerate
from tests.unit.renderers.report_factory import a_report

GOLDEN = Path(__file__).parents[2] / "golden"
REGENERATE = "LLMPROF_REGENERATE_GOLDEN"
FOOTER = "run file  .llmprof/runs/x.json"


@pytest.mark.parametrize(
    ("name", "width", "color"),
    [("60", 60, False), ("80", 80, False), ("140", 140, False), ("80_color", 80, True)],
)
def test_summary_is_as_approved(name: str, width: int, color: bool) -> None:
    text = run_text(a_report(), width=width, color=color, footer=FOOTER)
    file = GOLDEN / f"run_text_{name}.txt"
    if os.environ.get(REGENERATE):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"approve it with {REGENERATE}=1"


def test_summary_is_one_screen() -> None:
    lines = run_text(a_report(), width=80, footer=FOOTER).splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize("width", [20, 39, 59, 60, 79, 80, 100, 200])
@pytest.mark.parametrize("report", degenerate.REPORTS, ids=degenerate.NAMES)
def test_every_report_fits_every_width(report: Report, width: int) -> None:
    lines = run_text(report, width=width).splitlines()
    assert lines
    assert max(map(cell_len, lines)) <= width


def test_answers_and_figures_are_words_and_numbers() -> None:
    text = " ".join(run_text(a_report(batch=4), width=200).split())
    for expected in (
        "PREFILL 178 ms [173, 183]",
        "DECODE 15.6 ms [15.1, 16.1]",
        "compute side, unsaturated",
        "memory side, unsaturated",
        "66 % [64, 68] of its roof",
        "256 output tok/s in total, 64.1 per sequence",  # 4 / 15.6 ms, 1 / 15.6 ms
        "135 M parameters",
        "weights bf16 257 MiB",  # 134,515,008 x 2 / 2^20
        "RANDOM WEIGHTS",
        "L loss 3.44 ms 22 %",
    ):
        assert expected in text


def test_largest_losses_come_first() -> None:
    text = run_text(a_report(), width=60)
    decode = text[text.index("decode: time above the roofs") :].splitlines()[1:4]
    assert [line[1:19].strip() for line in decode] == [
        "gate/up projection",
        "attention",
        "down projection",
    ]


def test_more_caveats_than_fit_are_counted_and_named() -> None:
    caveats = tuple(Caveat(code=f"code-{n}", message="word " * 20) for n in range(9))
    text = run_text(a_report().model_copy(update={"caveats": caveats}), width=80)
    shown = sum(line.startswith("! word") for line in text.splitlines())
    assert 0 < shown < 9
    assert f"! {9 - shown} more: " in text
    rest = text[text.index(" more: ") :].replace("\n ", "")
    assert all(f"code-{n}" in rest for n in range(shown, 9))


def test_inconclusive_says_why() -> None:
    text = " ".join(run_text(degenerate.inconclusive(), width=200).split())
    assert (
        "inconclusive · 3 of 8 rounds were contended; the step varies by 14 %; and 1 more" in text
    )


def test_above_the_roof_is_shown() -> None:
    assert "132 % [128, 136] of its roof" in run_text(degenerate.above_the_roof(), width=120)


def test_negative_loss_is_in_the_legend_and_not_in_the_bar() -> None:
    text = run_text(degenerate.negative_loss(), width=100)
    assert "L loss -1.00 ms -10 %" in text
    bar = next(line for line in text.splitlines() if line.startswith("▕"))
    assert "L" not in bar
    assert len(bar) == 100


def test_markup_and_control_characters_of_a_name_are_harmless() -> None:
    text = run_text(degenerate.named('[red]<b>\x1b[31m\n"x"'), width=200)
    assert '[red]<b> [31m "x"' in text
    assert "\x1b" not in text


def test_color_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in run_text(a_report(), color=True)
    assert "\x1b[" not in run_text(a_report())
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=(out := io.StringIO()), force_terminal=True, width=80)
    render_run(a_report(), console)
    assert "\x1b[3" not in out.getvalue().replace("\x1b[3m", "")  # italic is no colour


def test_console_without_unicode_gets_ascii() -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    render_run(a_report(), Console(file=raw, width=80))
    raw.flush()
    text = raw.buffer.getvalue().decode("ascii")
    assert "|W####" in text
    assert "D decode: 1.09 FLOP/byte" in text


def test_colors_do_not_change_the_words() -> None:
    colored = io.StringIO(run_text(a_report(), color=True)).getvalue()
    plain = run_text(a_report())
    from rich.text import Text

    assert Text.from_ansi(colored).plain.split() == plain.split()


def test_groups_and_parts_are_read_as_words() -> None:
    labels = [group.label for group in OpGroup]
    assert labels[1:9] == [
        "norm",
        "QKV projection",
        "rope",
        "KV append",
        "attention",
        "output projection",
        "gate/up projection",
        "activation",
    ]
    assert OpGroup.LM_HEAD.label == "LM head"
    assert [part.label for part in Part][:5] == [
        "weights",
        "KV cache",
        "other memory",
        "compute",
        "fixed cost",
    ]


def test_phase_words_are_complete() -> None:
    from llmprof.renderers import bars, wording
    from llmprof.schema.verdict import Limit, Saturation

    assert set(wording.PART_MEANINGS) == set(bars.MARKS) == set(Part)
    assert set(wording.LIMIT_NAMES) == set(Limit)
    assert set(wording.SATURATION_NAMES) == set(Saturation)
    assert set(wording.TOKEN_NAMES) == set(Phase)
    letters = [mark.letter for mark in bars.MARKS.values()]
    assert len(set(letters)) == len(letters)
