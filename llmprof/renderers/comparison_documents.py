"""Every file format of a comparison, by the suffix of the file's name."""

import csv
import io
from collections.abc import Callable

from llmprof import units
from llmprof.errors import InputError
from llmprof.renderers.comparison_tables import (
    metrics_table,
    outputs_text,
    parts_tables,
    settings_table,
    stamps,
)
from llmprof.renderers.confirmation_tables import confirmation_tables
from llmprof.renderers.document_page import Page, render_page
from llmprof.renderers.inline_svg import inline_svg
from llmprof.renderers.live_tables import (
    arrangement_text,
    prediction_text,
)
from llmprof.renderers.markdown import code, details, escaped, table_lines
from llmprof.renderers.tables import Table
from llmprof.renderers.what_ran import Fact
from llmprof.renderers.wording import one_line
from llmprof.schema.comparison import ComparedSide, Comparison, LiveComparison, MetricChange


def comparison_json(comparison: Comparison) -> bytes:
    return (comparison.model_dump_json(indent=2) + "\n").encode()


def comparison_csv(comparison: Comparison) -> bytes:
    """One row per metric, in base units."""
    rows = [_csv_row(change, comparison) for change in comparison.metrics]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else ["metric"], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def _csv_row(change: MetricChange, comparison: Comparison) -> dict[str, str | float | None]:
    base, cand, ratio = change.baseline, change.candidate, change.ratio
    return {
        "metric": change.metric.name,
        "unit": change.metric.unit.value,
        "better": change.metric.better.value,
        "baseline": base.point if base else None,
        "candidate": cand.point if cand else None,
        "ratio": ratio.point if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "confidence": ratio.confidence if ratio else None,
        "basis": change.basis.value,
        "p_value": change.p_value,
        "p_adjusted": change.p_adjusted,
        "change": change.change.value,
        "baseline_run": " ".join(comparison.baseline.run_ids),
        "candidate_run": " ".join(comparison.candidate.run_ids),
    }


def comparison_markdown(comparison: Comparison) -> bytes:
    """Short enough for a pull request."""
    lines = [f"### llmprof compare: {escaped(one_line(comparison.baseline.model))}", ""]
    lines += [line for stamp in stamps(comparison) for line in (f"**{escaped(stamp)}**", "")]
    lines += [escaped(one_line(comparison.headline)), ""]
    metrics = metrics_table(comparison)
    lines += [*table_lines(metrics), "", f"{metrics.caption}.", ""]
    if comparison.settings:
        lines += [*table_lines(settings_table(comparison)), ""]
    if comparison.live is not None:
        lines += [*_live_lines(comparison.live), ""]
    for table in parts_tables(comparison):
        lines += details(escaped(table.caption), table_lines(table))
    lines += [f"- *Caveat.* {escaped(one_line(one.message))}" for one in comparison.caveats]
    base, cand = (side.run_ids[0] for side in (comparison.baseline, comparison.candidate))
    lines += ["", f"Baseline {code(base)}, candidate {code(cand)}; {outputs_text(comparison)}.", ""]
    return "\n".join(lines).encode()


def _live_lines(live: LiveComparison) -> list[str]:
    lines = [f"{escaped(one_line(prediction_text(live)))}; {arrangement_text(live)}.", ""]
    if live.confirmation is not None:
        forecast, *_residuals = confirmation_tables(live.confirmation)
        lines += [*table_lines(forecast), ""]
        lines += [f"- {escaped(one_line(one.sentence))}" for one in live.confirmation.phases]
    return lines


def comparison_html(comparison: Comparison, *, question: str = "") -> bytes:
    from llmprof.renderers.comparison_figure import HOW_TO_READ, comparison_figure

    svg = inline_svg(
        comparison_figure(comparison, "svg", explained=False),
        name="roofline",
        title="Roofline: both runs, FLOP/s over FLOP/byte, both logarithmic",
        description="The tables below hold the same figures.",
    )
    model = one_line(comparison.baseline.model)
    settings = settings_table(comparison)
    first = (metrics_table(comparison), *((settings,) if settings.rows else ()))
    return render_page(
        Page(
            title=f"{model}: candidate against baseline",
            brand="which is faster, and why",
            when=f"{comparison.candidate.created:%Y-%m-%d %H:%M} UTC",
            stamps=stamps(comparison),
            facts=(
                *map(_fact, (comparison.baseline, comparison.candidate)),
                Fact("device", one_line(comparison.candidate.device)),
                Fact("outputs", outputs_text(comparison)),
                *_live_facts(comparison.live),
            ),
            headline=one_line(comparison.headline),
            figures=((svg, HOW_TO_READ),),
            sections=(
                ("Metrics", first),
                *_live_sections(comparison.live),
                ("Where the difference lies", parts_tables(comparison)),
            ),
            caveats=comparison.caveats,
            question=question,
        )
    )


def _live_facts(live: LiveComparison | None) -> tuple[Fact, ...]:
    if live is None:
        return ()
    return (
        Fact("turns", arrangement_text(live)),
        Fact("prediction", one_line(prediction_text(live))),
    )


def _live_sections(live: LiveComparison | None) -> tuple[tuple[str, tuple[Table, ...]], ...]:
    if live is None or live.confirmation is None:
        return ()
    return (("Predicted and measured", confirmation_tables(live.confirmation)),)


def _fact(side: ComparedSide) -> Fact:
    weights = f"{one_line(side.weights)} {units.byte_count(side.weight_bytes)}"
    return Fact(side.label, f"{one_line(', '.join(side.run_ids))} · {weights}")


def _figure(kind: str) -> Callable[[Comparison], bytes]:
    def draw(comparison: Comparison) -> bytes:
        from llmprof.renderers.comparison_figure import comparison_figure

        return comparison_figure(comparison, kind)

    return draw


RENDERERS: dict[str, Callable[[Comparison], bytes]] = {
    ".html": comparison_html,
    ".md": comparison_markdown,
    ".json": comparison_json,
    ".csv": comparison_csv,
    ".png": _figure("png"),
    ".svg": _figure("svg"),
    ".pdf": _figure("pdf"),
}


def check_comparison_suffix(suffix: str) -> None:
    """Raises InputError for a name that ends in no known format, before anything is read."""
    if suffix.lower() not in RENDERERS:
        raise InputError(
            f"no format of a comparison for a name that ends in {suffix!r}",
            remedy=f"Known suffixes: {' '.join(RENDERERS)}",
        )


def render_comparison_file(comparison: Comparison, suffix: str) -> bytes:
    check_comparison_suffix(suffix)
    return RENDERERS[suffix.lower()](comparison)
