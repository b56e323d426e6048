"""The pages that a browser opens: every kind of document, and those at the edge."""

from collections.abc import Callable
from functools import cache

from llmprof.analysis.report import build_report
from llmprof.renderers.comparison_documents import comparison_html
from llmprof.renderers.gate_documents import gate_html
from llmprof.renderers.html_page import render_html
from llmprof.renderers.plan_page import plan_page
from llmprof.renderers.prediction_documents import prediction_html
from llmprof.renderers.sweep_page import sweep_page
from llmprof.schema.sweep import CellMetrics, CellStatus, Sweep
from tests.predicted_runs import a_base_run
from tests.sweeps import a_sweep, some_metrics
from tests.unit.renderers import degenerate, richer_runs, timelines
from tests.unit.renderers.documents import a_comparison, a_gate, a_plan, a_prediction, two_axes

BATCHES = (1, 4, 16)


def failed_cells() -> Sweep:
    """A crash, a cell that ran out of memory, and one that was measured."""
    outcomes: list[CellMetrics | tuple[CellStatus, str]] = [
        some_metrics(batch=1),
        (CellStatus.FAILED, "<crash>"),
        (CellStatus.FAILED, "out of memory: needs 9 GiB, 4 GiB are free"),
    ]
    return a_sweep({"workload.batch": BATCHES}, outcomes)


PAGES: dict[str, Callable[[], bytes]] = {
    "measured": lambda: render_html(build_report(a_base_run())),
    "confirmed": lambda: render_html(richer_runs.confirmed()),
    "on a GPU": lambda: render_html(build_report(richer_runs.on_a_gpu())),
    "served": lambda: render_html(timelines.served()),
    "nothing": lambda: render_html(degenerate.nothing()),
    "one sample": lambda: render_html(degenerate.one_sample()),
    "no ceilings": lambda: render_html(degenerate.no_roof()),
    "no points": lambda: render_html(degenerate.no_points()),
    "partial": lambda: render_html(degenerate.partial()),
    "inconclusive": lambda: render_html(degenerate.odd()),
    "above its roof": lambda: render_html(degenerate.above_the_roof()),
    "no model": lambda: render_html(degenerate.no_model()),
    "hostile": lambda: render_html(degenerate.hostile()),
    "sweep": lambda: sweep_page(two_axes()),
    "failed cells": lambda: sweep_page(failed_cells()),
    "comparison": lambda: comparison_html(a_comparison()),
    "gate": lambda: gate_html(a_gate()),
    "plan": lambda: plan_page(a_plan()),
    "prediction": lambda: prediction_html(a_prediction()),
}


@cache
def html(name: str) -> bytes:
    return PAGES[name]()
