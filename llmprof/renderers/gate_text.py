"""A gate's result on one screen of a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmprof import units
from llmprof.renderers.gate_tables import effort, gate_table, headline, reason_text
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.wording import one_line
from llmprof.schema.gate_result import GateResult, GateVerdict
from llmprof.schema.noise import NoiseFloor

_STYLES = {
    "FAIL": "bold red",
    "PASS": "green",
    "PASS, better": "green",
    "INCONCLUSIVE": "yellow",
    "UNSTABLE": "yellow",
}
_LEAST_WIDTH = {"detectable": 100, "baseline": 80, "candidate": 80}
"""Of a terminal that shows such a column."""


def render_gate(result: GateResult, console: Console) -> None:
    """Print who was judged, the table, and why a metric did not pass."""
    for line in wrap_all(_header(result), console.width):
        console.print(line)
    table = gate_table(result)
    kept = [index for index, name in enumerate(table.columns) if _has_room(name, console.width)]
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for index in kept:
        number = index > 0 and index not in table.prose
        column = table.columns[index]
        shown.add_column(column, justify="right" if number else "left", no_wrap=column != "change")
    for row in table.rows:
        shown.add_row(*(Text(row[index], _STYLES.get(row[index], "")) for index in kept))
    console.print(shown)
    for line in wrap_all(_footer(result), console.width):
        console.print(line)


def _has_room(column: str, width: int) -> bool:
    """Whether a terminal shows it. Metric, change, what is allowed and the verdict always stand."""
    return width >= _LEAST_WIDTH.get(column, 0)


def _header(result: GateResult) -> list[Text]:
    arms = [f"candidate {one_line(result.candidate.label)}"]
    if result.baseline:
        arms.insert(0, f"baseline {one_line(result.baseline.label)}")
    return [
        Text.assemble((f"llmprof gate {result.command} ", "dim"), (one_line(result.title), "bold")),
        Text(" · ".join([*arms, one_line(result.device)])),
        Text(effort(result), "dim"),
        Text(),
    ]


def _footer(result: GateResult) -> list[Text]:
    lines = [Text()]
    for one in result.judgements:
        if one.verdict is not GateVerdict.PASS:
            lines.append(Text(f"{one.metric.name}: {one_line(reason_text(one))}"))
    lines += [Text(f"! {one_line(caveat.message)}", "yellow") for caveat in result.caveats]
    words = headline(result).partition(":")[0]
    lines.append(Text(f"{words}. Exit code {result.exit_code}.", "bold"))
    return lines


def render_noise(floor: NoiseFloor, console: Console) -> None:
    """What a calibration learned: per metric the noise, and what can be shown in spite of it."""
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("metric", "pairs", "noise of a pair", "gate run shows", "gate check shows"):
        shown.add_column(column, justify="left" if column == "metric" else "right")
    for one in floor.metrics:
        saved = "n/a" if one.launch_floor is None else units.percent(2 * one.launch_floor)
        shown.add_row(
            one.name,
            str(one.num_pairs),
            units.percent(one.pair_spread),
            units.percent(one.paired_floor),
            saved,
        )
    console.print(shown)
