"""The small roofline: marks and ceilings lie where the numbers say."""

import pytest
from rich.cells import cell_len

from llmprof.renderers.log_window import LogWindow
from llmprof.renderers.roofline_text import HEIGHT, roofline_lines
from tests.unit.renderers import degenerate
from tests.unit.renderers.report_factory import a_report


def test_window_is_logarithmic() -> None:
    window = LogWindow(0.1, 1000.0, 1e9, 1e13)
    assert window.across(10.0) == pytest.approx(0.5)
    assert window.up(1e11) == pytest.approx(0.5)
    assert window.intensity_at(0.75) == pytest.approx(100.0)


@pytest.mark.parametrize("width", [40, 44, 80, 120])
def test_plot_fits_and_marks_are_below_the_roof(width: int) -> None:
    lines = [line.plain for line in roofline_lines(a_report(), width)]
    assert len(lines) == HEIGHT + 3
    assert max(map(cell_len, lines)) <= width
    plot = lines[1 : HEIGHT + 1]
    for mark in "Da":
        row = next(index for index, line in enumerate(plot) if mark in line[12:])
        above = [
            line[plot[row].index(mark)] for line in plot[:row] if len(line) > plot[row].index(mark)
        ]
        assert any(0x2800 < ord(char) <= 0x28FF for char in above) or mark == "D"


def test_roof_rises_to_the_ridge_and_is_flat_after_it() -> None:
    lines = [line.plain for line in roofline_lines(a_report(), 80)]
    plot = [line[12:].ljust(67) for line in lines[1 : HEIGHT + 1]]
    ridge = lines[HEIGHT + 1].index("┴") - 12
    tops = [
        next(row for row, line in enumerate(plot) if 0x2800 < ord(line[column]) <= 0x28FF)
        for column in range(ridge + 2, 66)
        if plot[1][column] != "P"
    ]
    assert len(set(tops)) == 1
    left = [row for row, line in enumerate(plot) if 0x2800 < ord(line[1]) <= 0x28FF]
    assert left[0] > tops[0]


def test_above_the_roof_is_above_the_roof() -> None:
    report = degenerate.above_the_roof()
    assert report.roof is not None
    fast = report.roof.matmul_flops_per_s.point * 3
    rate = report.points[0].achieved_flops_per_s.model_copy(update={"point": fast, "high": fast})
    point = report.points[0].model_copy(update={"achieved_flops_per_s": rate})
    lines = [
        line.plain for line in roofline_lines(report.model_copy(update={"points": (point,)}), 60)
    ]
    row = next(index for index, line in enumerate(lines[1:]) if "P" in line[12:])
    roof = next(
        i for i, line in enumerate(lines[1:]) if any(0x2800 < ord(c) <= 0x28FF for c in line)
    )
    assert row < roof


def test_narrow_or_unjudged_gives_a_table() -> None:
    assert "decode: 1.09 FLOP/byte, 21.7 GFLOP/s" in roofline_lines(a_report(), 39)[1].plain
    assert "no roofline" in roofline_lines(degenerate.no_points(), 80)[0].plain
