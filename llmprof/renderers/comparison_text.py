"""A comparison on one screen of a terminal."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.comparison_tables import (
    adjusted_text,
    outputs_text,
    parts_tables,
    settings_table,
    short_metrics_table,
    stamps,
)
from llmprof.renderers.live_tables import arrangement_text, prediction_text
from llmprof.renderers.tables import Table
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.whole_table import print_table
from llmprof.renderers.wording import is_whole_phase, one_line
from llmprof.schema.comparison import Basis, ComparedSide, Comparison, LiveComparison

_STYLES = {"better": "green", "worse": "red", "~": "dim", "=": "dim"}
MOST_CAVEATS = 3
_LEAST_LAUNCHES = 4
"""A side, for a single metric: in documents of versions that did not say how many it takes."""
_INTERVAL_WIDTH = 75
"""What a table of parts needs for its intervals."""


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Print who is compared, the metrics, where the difference lies, and what to doubt."""
    for line in wrap_all(list(_header(comparison)), console.width):
        console.print(line)
    if comparison.settings:
        _print_table(settings_table(comparison), console)
    else:
        console.print()
    _print_table(short_metrics_table(comparison), console)
    if comparison.live is not None:
        for line in wrap_all([Text(), *_forecast(comparison.live)], console.width):
            console.print(line)
    for table in parts_tables(comparison):
        console.print(Text(f"\n{table.caption}", "bold"))
        _print_table(table, console)
    for line in wrap_all([Text(), *_footer(comparison)], console.width):
        console.print(line)


def _header(comparison: Comparison) -> Iterator[Text]:
    yield Text.assemble(("llmprof compare ", "dim"), (one_line(comparison.baseline.model), "bold"))
    for stamp in stamps(comparison):
        yield Text(stamp, "bold yellow")
    yield _side(comparison.baseline)
    yield _side(comparison.candidate)
    yield Text(one_line(comparison.headline), "italic")


def _side(side: ComparedSide) -> Text:
    others = len(side.run_ids) - 1
    launches = f" and {others} more {'launch' if others == 1 else 'launches'}" if others else ""
    weights = f"{one_line(side.weights)} {units.byte_count(side.weight_bytes)}"
    return Text(f"{side.label:<10} {one_line(side.run_ids[0])}{launches} · weights {weights}")


def _forecast(live: LiveComparison) -> Iterator[Text]:
    """The prediction that was on disk before, and where it missed."""
    yield Text(one_line(prediction_text(live)), "dim")
    for one in live.confirmation.phases if live.confirmation else ():
        held = "inside the interval" if one.inside else "OUTSIDE the interval"
        yield Text.assemble(
            (one_line(one.sentence), "bold"), f" · {held}, {units.percent(one.error)} off"
        )


def _print_table(table: Table, console: Console) -> None:
    """Without the intervals of the parts where they would only be broken in two."""
    kept = [
        index
        for index, column in enumerate(table.columns)
        if column != "interval" or console.width >= _INTERVAL_WIDTH
    ]
    print_table(
        console,
        [table.columns[index] for index in kept],
        [[Text(row[index], _STYLES.get(row[index], "")) for index in kept] for row in table.rows],
        left={0, *(place for place, index in enumerate(kept) if index in table.prose)},
        broken=range(1, len(kept)),
        header_style="dim",
    )


def _footer(comparison: Comparison) -> Iterator[Text]:
    for line in _moves(comparison):
        yield Text(line)
    yield Text(_note(comparison), "dim")
    if comparison.live is not None:
        told = arrangement_text(comparison.live)
        yield Text(f"{told[0].upper()}{told[1:]}.", "dim")
    yield Text(f"Outputs: {outputs_text(comparison)}.", "dim")
    for caveat in comparison.caveats[:MOST_CAVEATS]:
        yield Text(f"! {one_line(caveat.message)}", "yellow")
    more = comparison.caveats[MOST_CAVEATS:]
    if more:
        codes = ", ".join(dict.fromkeys(one_line(caveat.code) for caveat in more))
        yield Text(f"! {len(more)} more: {codes}", "yellow")


def _note(comparison: Comparison) -> str:
    """What stands behind the marks."""
    if any(change.basis is Basis.ONE_LAUNCH and change.ratio for change in comparison.metrics):
        floors = [change.noise_floor for change in comparison.metrics if change.noise_floor]
        known = ""
        if floors:
            known = f"; launches of the same code differ by up to {units.percent(max(floors))} here"
        return (
            f"~ no difference is shown: it takes {comparison.launches_needed or _LEAST_LAUNCHES} launches "
            f"a side; the intervals hold the rounds of these processes alone{known}."
        )
    if comparison.live is not None:
        return (
            "~ no difference is shown (signed-rank test over the pairs, two-sided at 5 %, each metric by "
            "itself)."
        )
    needed = comparison.launches_needed
    few = f"; for one of so many it takes {needed} launches a side" if needed else ""
    return (
        "~ no difference is shown (Mann-Whitney test over launches, two-sided at 5 %, "
        f"{adjusted_text(comparison)}){few}."
    )


def _moves(comparison: Comparison) -> Iterator[str]:
    """How each phase moved on the roofline."""
    after = {point.label: point for point in comparison.candidate.points}
    for point in comparison.baseline.points:
        other = after.get(point.label)
        if other is None or not is_whole_phase(point):
            continue
        intensity = [units.significant(one.intensity_flops_per_byte) for one in (point, other)]
        rate = [units.flops_per_s(one.achieved_flops_per_s.point) for one in (point, other)]
        roof = [units.percent(one.roof_fraction.point) for one in (point, other)]
        yield (
            f"{point.label}: {intensity[0]} → {intensity[1]} FLOP/byte, {rate[0]} → {rate[1]}, "
            f"{roof[0]} → {roof[1]} of its roof"
        )
