"""The figures: same report, same bytes; labels as text; nothing that breaks them."""

import re
from collections.abc import Callable

import pytest

from llmprof.renderers.ledger_figure import ledger_figure
from llmprof.renderers.roofline_figure import roofline_figure, spread
from llmprof.renderers.rounds_figure import rounds_figure
from llmprof.renderers.steps_figure import steps_figure
from llmprof.renderers.timeline_tables import steps_table
from llmprof.schema.cost import Phase
from llmprof.schema.report import Report
from llmprof.schema.timeline import StepTimes, Timeline
from tests.unit.renderers import degenerate
from tests.unit.renderers.report_factory import a_report

Draw = Callable[[Report, str], bytes]
MAGIC = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def texts(svg: bytes) -> list[str]:
    found = re.findall(r"<text[^>]*>([^<]*)</text>", svg.decode())
    return [text.replace("&lt;", "<").replace("&gt;", ">") for text in found]


@pytest.mark.parametrize("kind", MAGIC)
def test_same_report_same_bytes(kind: str) -> None:
    first = roofline_figure(a_report(), kind)
    assert first.startswith(MAGIC[kind])
    assert first == roofline_figure(a_report(), kind)
    assert b"Matplotlib" not in first
    assert b"CreationDate" not in first


@pytest.mark.parametrize("draw", [roofline_figure, ledger_figure, rounds_figure])
@pytest.mark.parametrize(
    "make",
    [degenerate.nothing, degenerate.hostile, degenerate.negative_loss],
)
def test_edges_are_drawn(draw: Draw, make: Callable[[], Report]) -> None:
    assert draw(make(), "svg").rstrip().endswith(b"</svg>")


def test_roofline_says_its_numbers() -> None:
    labels = texts(roofline_figure(a_report(), "svg"))
    for expected in (
        "read 28.0 GB/s (DRAM)",
        "bf16 matmul 1.20 TFLOP/s",
        "skinny matmul 21.6 GB/s",  # 0.77 x 28
        " ridge 42.9 FLOP/byte",  # 1200 / 28
        "decode  1.09 FLOP/byte, 66 % of its roof",
    ):
        assert expected in labels


def test_a_point_in_another_dtype_has_the_flat_roof_of_that_dtype() -> None:
    report = a_report()
    fp8 = report.run.ceilings.compute[0].model_copy(update={"dtype": "fp8", "flops_per_s": 2.4e12})
    ceilings = report.run.ceilings.model_copy(update={"compute": (fp8,)})
    points = tuple(point.model_copy(update={"dtype": "fp8"}) for point in report.points)
    run = report.run.model_copy(update={"ceilings": ceilings})
    changed = report.model_copy(update={"run": run, "points": points})
    assert "fp8 matmul 2.40 TFLOP/s" in texts(roofline_figure(changed, "svg"))
    assert not [text for text in texts(roofline_figure(report, "svg")) if "fp8" in text]


def test_slope_of_the_roof_is_one_decade_per_decade() -> None:
    """The drawn line through one decade of intensity rises by one decade of FLOP/s."""
    svg = roofline_figure(a_report(), "svg").decode()
    ticks = re.findall(r'id="([xy])tick_\d+".*?<use[^>]*x="([\d.]+)" y="([\d.]+)"', svg, re.DOTALL)
    xs = [float(x) for axis, x, _ in ticks if axis == "x"]
    ys = [float(y) for axis, _, y in ticks if axis == "y"]
    line = re.search(
        r'<path d="M ([\d.]+) ([\d.]+) \nL ([\d.]+) ([\d.]+) \nL [\d. ]+\n"[^>]*stroke: #1c2128; stroke-width: 1.8',
        svg,
    )
    assert line is not None
    x0, y0, x1, y1 = map(float, line.groups())
    decade_x, decade_y = xs[1] - xs[0], ys[0] - ys[1]
    assert (y0 - y1) / decade_y == pytest.approx((x1 - x0) / decade_x, rel=1e-4)


def test_ledger_names_parts_and_times() -> None:
    labels = texts(ledger_figure(a_report(), "svg"))
    assert {"prefill", "178 ms", "decode", "15.6 ms", "weights", "9.61 ms", "loss"} <= set(labels)
    assert any(label.startswith("hidden: compute 255") for label in labels)


def test_a_figure_and_its_table_tell_the_same_median() -> None:
    """Of 1, 2, 4 and 8 s it is 3 s, and neither of the two in the middle."""
    times = StepTimes(phase=Phase.DECODE, num_steps=4, times_s=(1.0, 2.0, 4.0, 8.0))
    timeline = Timeline(round_index=None, response=(), requests=(), cache=(), steps=(times,))
    assert " median 3.00 s" in texts(steps_figure(timeline, "svg"))
    (row,) = steps_table(timeline).rows
    assert row == ("decode", "4", "1.00 s", "1.15 s", "3.00 s", "7.40 s", "8.00 s")


def test_user_settings_of_matplotlib_change_nothing() -> None:
    import matplotlib as mpl

    plain = ledger_figure(a_report(), "svg")
    with mpl.rc_context({"font.size": 30, "axes.grid": True, "lines.linewidth": 9}):
        assert ledger_figure(a_report(), "svg") == plain
        assert mpl.rcParams["font.size"] == 30


def test_labels_move_apart_only_where_they_must() -> None:
    assert spread([0.9, 0.5, 0.48, 0.1], 0.05) == pytest.approx([0.9, 0.5, 0.45, 0.1])
    assert spread([], 0.05) == []
