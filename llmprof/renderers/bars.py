"""The ledger of one step as a bar of characters that reads without colour."""

from typing import NamedTuple

from rich.style import Style
from rich.text import Text

from llmprof import units
from llmprof.schema.ledger import Ledger, Part, PartTime


class Mark(NamedTuple):
    """How a part looks: the letter that opens its segment, what fills it, and a colour."""

    letter: str
    fill: str
    style: Style


MARKS: dict[Part, Mark] = {
    Part.MEMORY_WEIGHTS: Mark("W", "█", Style(color="blue")),
    Part.MEMORY_KV: Mark("K", "▓", Style(color="cyan")),
    Part.MEMORY_OTHER: Mark("M", "▒", Style(color="bright_blue")),
    Part.COMPUTE: Mark("C", "▞", Style(color="green")),
    Part.FIXED_COST: Mark("F", "=", Style(color="bright_black")),
    Part.LOSS: Mark("L", "░", Style(color="yellow")),
    Part.GAPS: Mark("G", "·", Style(color="bright_black")),
    Part.COMMUNICATION: Mark("X", "≡", Style(color="bright_magenta")),
    Part.HOST: Mark("H", "-", Style(color="magenta")),
}

SMALL_SHARE = 0.001
"""Parts below this share of the step are named without their time."""
SHOWN_HIDDEN_SHARE = 0.05
"""A hidden term below this share of the step is left to the larger documents."""


def ledger_bar(ledger: Ledger, width: int) -> Text:
    """One line of `width` cells. A negative part has no length: the legend shows its number."""
    shown = [part for part in ledger.parts if part.time_s.point > 0]
    bar = Text("▕", end="")
    for part, cells in zip(shown, _cells(shown, width - 2), strict=True):
        mark = MARKS[part.part]
        bar.append((mark.letter + mark.fill * cells)[:cells], mark.style)
    return bar.append("▏")


def ledger_legend(ledger: Ledger) -> list[Text]:
    """Letter, name, time and share of each part, largest first; then the small and the hidden."""
    ordered = sorted(ledger.parts, key=lambda part: -part.time_s.point)
    large = [part for part in ordered if abs(part.share) >= SMALL_SHARE]
    small = [part.part.label for part in ordered if 0 < abs(part.share) < SMALL_SHARE]
    legend = [_entry(part) for part in large]
    if small:
        legend.append(Text(f"below {units.percent(SMALL_SHARE)}: {', '.join(small)}", "dim"))
    return legend + [
        Text(f"hidden: {term.name} {units.seconds(term.time_s)} under {term.under}", "dim")
        for term in ledger.hidden
        if term.time_s >= SHOWN_HIDDEN_SHARE * ledger.step_s.point
    ]


def _entry(part: PartTime) -> Text:
    mark = MARKS[part.part]
    entry = Text()
    entry.append(mark.letter, mark.style + Style(bold=True))
    time = units.seconds(part.time_s.point)
    return entry.append(f" {part.part.label} {time} {units.percent(part.share)}")


def _cells(parts: list[PartTime], width: int) -> list[int]:
    """Whole cells by largest remainder: they fill the bar, and rounding favours no part."""
    total = sum(part.time_s.point for part in parts)
    exact = [width * part.time_s.point / total for part in parts]
    cells = [int(length) for length in exact]
    by_remainder = sorted(range(len(parts)), key=lambda index: cells[index] - exact[index])
    for index in by_remainder[: width - sum(cells)]:
        cells[index] += 1
    return cells
