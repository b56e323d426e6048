"""Names of points, by the pixels that they really take."""

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from llmprof.renderers.figure_style import styled
from llmprof.renderers.sweep_figure import _PANEL_IN, _draw_trade_off
from llmprof.renderers.sweep_lines import lines
from llmprof.schema.sweep import Sweep
from llmprof.store.documents import read_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPORTS = Path(__file__).parents[3] / "reports"
SWEEPS = sorted(file.name.removesuffix(".sweep.json") for file in REPORTS.glob("*.sweep.json"))


def trade_off(name: str) -> "Axes":
    from matplotlib.figure import Figure

    sweep, _ = read_document(REPORTS / f"{name}.sweep.json", Sweep)
    figure = Figure(figsize=_PANEL_IN, layout="constrained")
    panel = figure.subplots()
    _draw_trade_off(panel, sweep, lines(sweep))
    figure.draw_without_rendering()
    return panel


@pytest.mark.parametrize("name", SWEEPS)
def test_names_cross_neither_each_other_nor_the_title(name: str) -> None:
    """Of measured points: in one sweep three of six lie within 4 per cent of the width."""
    from matplotlib.text import Text

    with styled():
        panel = trade_off(name)
        texts = [*panel.texts, panel._left_title]  # type: ignore[attr-defined]
        # of an annotation without the line to its point
        boxes = [(one.get_text(), Text.get_window_extent(one)) for one in texts]
    assert len(boxes) > 2
    crossing = [
        (one, other)
        for (one, box), (other, beside) in combinations(boxes, 2)
        if box.overlaps(beside)
    ]
    assert not crossing


@pytest.mark.parametrize("name", SWEEPS)
def test_marks_at_the_edge_are_drawn_whole(name: str) -> None:
    with styled():
        panel = trade_off(name)
        inside = panel.get_window_extent()
        marks = [
            panel.transData.transform(one)
            for line in panel.lines
            for one in np.asarray(line.get_xydata())
        ]
    assert all(x < inside.x1 - 3 and y < inside.y1 - 3 for x, y in marks)
