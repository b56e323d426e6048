"""The vendor's peaks in a roofline figure: dashed and named, since nobody measured them."""

from typing import TYPE_CHECKING, Any, Final

from llmprof import units
from llmprof.renderers.datasheet_text import datasheet_name
from llmprof.renderers.figure_style import MUTED
from llmprof.renderers.log_window import LogWindow
from llmprof.renderers.marks import layer_gid
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE: Final[dict[str, Any]] = {"color": MUTED, "linewidth": 1.0, "linestyle": "--", "zorder": 1}


def draw_datasheet(axes: "Axes", report: Report, window: LogWindow) -> None:
    """Memory slope and the flat peak of the run's matmul dtype, as far as they are stated."""
    datasheet = report.datasheet
    if datasheet is None or report.roof is None:
        return
    peak = datasheet.flops_per_s.get(report.roof.matmul_dtype)
    low, high = window.low_intensity, window.high_intensity
    memory = datasheet.memory_bytes_per_s
    if memory is not None:
        end = min(high, peak / memory) if peak else high
        axes.plot(
            [low, end],
            [low * memory, end * memory],
            gid=layer_gid("datasheet", "datasheet-memory"),
            **_STYLE,
        )
    if peak is not None:
        start = max(low, peak / memory) if memory else low
        axes.plot(
            [start, high], [peak, peak], gid=layer_gid("datasheet", "datasheet-compute"), **_STYLE
        )
    _name(axes, datasheet, peak, window)


def _name(axes: "Axes", datasheet: Datasheet, peak: float | None, window: LogWindow) -> None:
    """Over the flat line where there is one; else in the upper left corner, with the slope's rate."""
    name, memory = datasheet_name(datasheet), datasheet.memory_bytes_per_s
    if peak is not None:
        label = f"{name}: {units.flops_per_s(peak)}"
        label += f", {units.bytes_per_s(memory)}" if memory else ""
        at = (window.high_intensity / 1.1, peak * 1.04)
        gid = layer_gid("datasheet", "datasheet-name")
        axes.text(*at, label, ha="right", va="bottom", size=7, color=MUTED, gid=gid)
    elif memory is not None:
        label = f"{name}: {units.bytes_per_s(memory)} (dashed)"
        axes.text(0.01, 0.98, label, transform=axes.transAxes, va="top", size=7, color=MUTED)
