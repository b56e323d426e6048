"""A gate's result on one screen of a terminal."""

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.gate_tables import effort, gate_table, headline, reason_text
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.whole_table import print_table
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
_NOISE = (
    "metric",
    "pairs",
    "noise of a pair",
    "launches",
    "of a launch",
    "gate run shows",
    "gate check shows",
)


def render_gate(result: GateResult, console: Console) -> None:
    """Print who was judged, the table, and why a metric did not pass."""
    for line in wrap_all(_header(result), console.width):
        console.print(line)
    _print_table(result, console)
    for line in wrap_all(_footer(result), console.width):
        console.print(line)


def _print_table(result: GateResult, console: Console) -> None:
    table = gate_table(result)
    kept = [index for index, name in enumerate(table.columns) if _has_room(name, console.width)]
    columns = [table.columns[index] for index in kept]
    rows = [[Text(row[index], _STYLES.get(row[index], "")) for index in kept] for row in table.rows]
    print_table(
        console,
        columns,
        rows,
        left={0, *(place for place, index in enumerate(kept) if index in table.prose)},
        broken={columns.index("change")},
        header_style="dim",
    )


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
    rows = [
        (
            one.name,
            str(one.num_pairs),
            units.percent(one.pair_spread),
            "n/a" if one.num_pair_launches is None else str(one.num_pair_launches),
            "n/a" if one.pair_launch_spread is None else units.percent(one.pair_launch_spread),
            units.percent(one.paired_floor),
            "n/a" if one.launch_floor is None else units.percent(2 * one.launch_floor),
        )
        for one in floor.metrics
    ]
    print_table(console, _NOISE, rows, header_style="dim")
