"""Every format that a report can be written in, by the suffix of the file's name.

A renderer turns one report into bytes. It touches no device, no clock and no path.
"""

from collections.abc import Callable, Sequence
from pathlib import PurePath

from llmprof.errors import InputError
from llmprof.schema.report import Report

Renderer = Callable[[Sequence[Report]], bytes]


def _html(reports: Sequence[Report]) -> bytes:
    from llmprof.renderers.html_page import render_html

    (report,) = reports
    return render_html(report)


def _json(reports: Sequence[Report]) -> bytes:
    from llmprof.renderers.json_document import render_json

    (report,) = reports
    return render_json(report)


def _markdown(reports: Sequence[Report]) -> bytes:
    from llmprof.renderers.markdown_table import render_markdown

    return render_markdown(reports)


def _csv(reports: Sequence[Report]) -> bytes:
    from llmprof.renderers.csv_table import render_csv

    return render_csv(reports)


def _ops_csv(reports: Sequence[Report]) -> bytes:
    from llmprof.renderers.ops_csv import render_ops_csv

    for report in reports:
        require_ops(report)
    return render_ops_csv(reports)


def _chrome_trace(reports: Sequence[Report]) -> bytes:
    from llmprof.renderers.chrome_trace import render_chrome_trace

    (report,) = reports
    return render_chrome_trace(report)


def _figure(kind: str) -> Renderer:
    def draw(reports: Sequence[Report]) -> bytes:
        from llmprof.renderers.roofline_figure import roofline_figure

        (report,) = reports
        return roofline_figure(report, kind)

    return draw


RENDERERS: dict[str, Renderer] = {
    ".html": _html,
    ".md": _markdown,
    ".json": _json,
    ".csv": _csv,
    ".png": _figure("png"),
    ".svg": _figure("svg"),
    ".pdf": _figure("pdf"),
    ".ops.csv": _ops_csv,
    ".trace.json": _chrome_trace,
}
SEVERAL_RUNS = (".md", ".csv", ".ops.csv")
"""Formats that hold more than one run."""
OF_OPS = (".ops.csv", ".trace.json")
"""Formats that show what the tracing pass saw."""


def suffix_of(name: str) -> str:
    """The end of a file's name that says its format: ".html", or ".trace.json" before ".json"."""
    ends = [suffix for suffix in RENDERERS if name.lower().endswith(suffix)]
    return max(ends, key=len) if ends else PurePath(name).suffix


def require_ops(report: Report) -> None:
    """Make sure that the run was traced.

    Raises:
        InputError: it was not, or nothing was read to judge its ops by.
    """
    if not report.ops:
        raise InputError(
            f"run {report.run.id} has no table of ops: its ops were not traced",
            remedy="Measure again with `llmprof run ... --ops`",
        )


def check_suffix(suffix: str, *, num_runs: int = 1) -> None:
    """Make sure that a file with this suffix can be rendered, before anything is measured.

    Raises:
        InputError: no renderer has this suffix, or it holds one run only.
    """
    if suffix.lower() not in RENDERERS:
        raise InputError(
            f"no report format for a name that ends in {suffix!r}",
            remedy=f"Known suffixes: {' '.join(RENDERERS)}",
        )
    if num_runs > 1 and suffix.lower() not in SEVERAL_RUNS:
        raise InputError(
            f"a {suffix} report holds one run, and {num_runs} were named",
            remedy=f"Name one run, or use {' or '.join(SEVERAL_RUNS)}",
        )


def render(report: Report, suffix: str) -> bytes:
    """The report in the format of `suffix` (".html", ".png", ...); same report, same bytes."""
    return render_all((report,), suffix)


def render_all(reports: Sequence[Report], suffix: str) -> bytes:
    """Several runs in one file, where the format can hold them."""
    check_suffix(suffix, num_runs=len(reports))
    return RENDERERS[suffix.lower()](reports)
