"""The ops of each phase on a terminal, the largest loss first."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.ops_tables import op_name, op_rate, ops_summary
from llmprof.renderers.text_layout import wrap
from llmprof.renderers.wording import one_line
from llmprof.schema.ops import OpEntry, PhaseOps
from llmprof.schema.report import Report

ROWS_PER_PHASE = 14
NOTABLE_SHARE = 0.05
WIDE = 96
"""From here on there is room for what each op reached of its link."""
_ASCII = str.maketrans({"µ": "u", "…": "."})


def render_ops(report: Report, console: Console) -> None:
    """Print one table per phase in the console's width."""
    for table in report.ops:
        doubts = [
            caveat.message
            for caveat in report.caveats
            if caveat.code.startswith("trace-") and caveat.phase is table.phase
        ]
        for line in _lines(table, doubts, console.width):
            if console.options.ascii_only:
                line.plain = line.plain.translate(_ASCII)
            console.print(line, no_wrap=True, overflow="ignore", crop=False)


def ops_text(report: Report, width: int = 80) -> str:
    """The tables as a string without colours."""
    console = Console(file=io.StringIO(), width=width, no_color=True)
    with console.capture() as capture:
        render_ops(report, console)
    return capture.get()


def _lines(table: PhaseOps, doubts: Sequence[str], width: int) -> list[Text]:
    """Columns that say how much, then the name, cut at the end of the line; then what speaks against it."""
    wide = width >= WIDE
    shown, rest = _shown(table)
    lines = [Text(), *wrap(Text(f"OPS · {ops_summary(table)}", "bold"), width)]
    lines.append(Text(_columns("loss", "time", "roof", "calls", "reached", "op", wide), "dim"))
    lines += [_line(entry, width, wide=wide) for entry in shown]
    if rest:
        lost = units.seconds(sum(entry.loss_s.point for entry in rest))
        lines.append(Text(f"{lost:>9}  in {len(rest)} more ops", "dim"))
    for doubt in doubts:
        lines += wrap(Text(f"! {one_line(doubt)}", "yellow"), width)
    for line in lines:
        line.rstrip()
    return lines


def _shown(table: PhaseOps) -> tuple[list[OpEntry], list[OpEntry]]:
    """The largest losses, and every op that takes a notable share of the step; then the others."""
    notable_s = NOTABLE_SHARE * table.step_s
    shown: list[OpEntry] = []
    rest: list[OpEntry] = []
    for index, entry in enumerate(table.entries):
        notable = index < ROWS_PER_PHASE or entry.time_s.point >= notable_s
        (shown if notable else rest).append(entry)
    return shown, rest


def _line(entry: OpEntry, width: int, *, wide: bool) -> Text:
    times = map(units.seconds, (entry.loss_s.point, entry.time_s.point, entry.roof_s))
    loss, time, roof = times
    calls, rate = units.count(entry.calls), op_rate(entry)
    text = Text(_columns(loss, time, roof, calls, rate, op_name(entry), wide))
    text.truncate(width, overflow="ellipsis")
    return text


def _columns(loss: str, time: str, roof: str, calls: str, rate: str, name: str, wide: bool) -> str:
    reached = f"{rate:>13} " if wide else ""
    return f"{loss:>9} {time:>8} {roof:>8} {calls:>5} {reached} {name}"
