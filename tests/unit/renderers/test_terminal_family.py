"""The summaries of all commands at three widths, with and without colour, as approved.

One family: they fit the terminal, say in words what they say in colour, and lose nothing without it.
"""

import io
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from llmprof.renderers.ceilings_text import render_ceilings
from llmprof.renderers.comparison_text import render_comparison
from llmprof.renderers.diagnosis_text import render_diagnosis
from llmprof.renderers.gate_text import render_gate
from llmprof.renderers.inspection_text import render_inspection
from llmprof.renderers.listing_text import render_listing
from llmprof.renderers.ncu_text import render_ncu
from llmprof.renderers.plan_text import print_plan
from llmprof.renderers.prediction_text import render_prediction
from llmprof.renderers.quality_text import render_quality
from llmprof.renderers.run_text import render_run
from llmprof.renderers.sweep_text import print_sweep
from tests.unit.renderers import timelines
from tests.unit.renderers.documents import (
    LATER,
    LISTED,
    a_comparison,
    a_diagnosis,
    a_gate,
    a_listing,
    a_live_comparison,
    a_plan,
    a_prediction,
    a_quality,
    an_inspection,
    some_counters,
    some_device,
    two_axes,
)

GOLDEN = Path(__file__).parents[2] / "golden"
REGENERATE = "LLMPROF_REGENERATE_GOLDEN"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


SUMMARIES: dict[str, Callable[[Console], None]] = {
    "served": lambda console: render_run(timelines.served(), console, footer="run file  x.json"),
    "comparison": lambda console: render_comparison(a_comparison(), console),
    "live_comparison": lambda console: render_comparison(a_live_comparison(), console),
    "sweep": lambda console: print_sweep(two_axes(), console),
    "gate": lambda console: render_gate(a_gate(), console),
    "prediction": lambda console: render_prediction(a_prediction(), console),
    "inspection": lambda console: render_inspection(an_inspection(), console),
    "plan": lambda console: print_plan(a_plan(), console),
    "ceilings": lambda console: render_ceilings(
        some_device(), console, now=LATER, parts=("base", "skinny")
    ),
    "doctor": lambda console: render_diagnosis(a_diagnosis(), console),
    "ls": lambda console: render_listing(a_listing(), console, now=LISTED),
    "quality": lambda console: render_quality(a_quality(), console),
    "ncu": lambda console: render_ncu(some_counters(), console),
}
WIDTHS = (60, 80, 140)


@cache
def shown(name: str, width: int, *, color: bool) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        highlight=False,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
    )
    with console.capture() as captured:
        SUMMARIES[name](console)
    return captured.get()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SUMMARIES)
def test_summary_is_as_approved(name: str, width: int) -> None:
    text = shown(name, width, color=False)
    file = GOLDEN / f"{name}_text_{width}.txt"
    if os.environ.get(REGENERATE):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"approve it with {REGENERATE}=1"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SUMMARIES)
def test_summary_fits_and_its_words_do_not_depend_on_colour(name: str, width: int) -> None:
    plain, colored = shown(name, width, color=False), shown(name, width, color=True)
    assert max(cell_len(line) for line in plain.splitlines()) <= width
    assert "\x1b" not in plain
    assert "\x1b[" in colored
    assert ANSI.sub("", colored) == plain


@pytest.mark.parametrize("name", SUMMARIES)
def test_no_color_wins_on_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=80, highlight=False, force_terminal=True)
    with console.capture() as captured:
        SUMMARIES[name](console)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", captured.get())


@pytest.mark.parametrize("width", [40, 60])
@pytest.mark.parametrize("name", SUMMARIES)
def test_no_figure_is_cut(name: str, width: int) -> None:
    """A number without its last digits or its unit is another number."""
    text = shown(name, width, color=False).replace("smollm2-135…", "a model's name")
    assert "…" not in text
