"""What would help, what would not, and where limits change sides: lines and tables."""

from collections.abc import Sequence

from rich.text import Text

from llmprof import units
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import LIMIT_NAMES, one_line
from llmprof.schema.levers import Lever, Levers
from llmprof.schema.prediction import Interval

SHOWN = 3
SHOWN_TOGETHER = 2
"""What a line of 80 columns holds with its intervals."""


def lever_lines(levers: Levers | None, room: int = SHOWN) -> list[Text]:
    """The three best levers, of each setting its best, one line each; or one line for two of them."""
    if levers is None:
        return []
    if not levers.helpful:
        return [Text("levers: none of the engine's switches is predicted to gain 3 %", "dim")]
    best = best_levers(levers)
    if room < len(best):
        return [_together(best[:SHOWN_TOGETHER])]
    return [_line(index, lever) for index, lever in enumerate(best)]


def best_levers(levers: Levers) -> list[Lever]:
    """Of each setting its best, the largest gains first."""
    best_of_key: dict[str, Lever] = {}
    for lever in levers.helpful:
        best_of_key.setdefault(lever.change.key, lever)
    return [*best_of_key.values()][:SHOWN]


def lever_sentences(levers: Levers | None) -> tuple[tuple[str, str], ...]:
    """For the first screen of the page: what to switch, and what it is predicted to give."""
    return tuple(
        (
            one_line(lever.label),
            f"{_gain(lever.gain)} {lever.phase.value} tok/s; then {units.percent(lever.then_share)} "
            f"{LIMIT_NAMES[lever.then]} ({lever.change.key}={one_line(str(lever.change.target))}, "
            f"tier {lever.tier.value})",
        )
        for lever in (best_levers(levers) if levers else ())
    )


def _line(index: int, lever: Lever) -> Text:
    head = "helps: " if index == 0 else " " * 7
    line = Text.assemble((head, "dim"), (f"{one_line(lever.label):<14}", "bold"))
    line.append(f" {_gain(lever.gain)} {lever.phase.value} tok/s (tier {lever.tier.value})")
    return line.append(f", then {LIMIT_NAMES[lever.then]}", "dim")


def _together(best: Sequence[Lever]) -> Text:
    told = ", ".join(f"{one_line(one.label)} {_gain(one.gain, 2)}" for one in best)
    tiers = list(dict.fromkeys(one.tier.value for one in best))
    of = f"{'tier' if len(tiers) == 1 else 'tiers'} {' and '.join(tiers)}"
    phases = "/".join(dict.fromkeys(one.phase.value for one in best))
    return Text.assemble((f"helps {phases}: ", "dim"), f"{told} ({of})")


def _gain(gain: Interval, digits: int = 3) -> str:
    return (
        f"{units.ratio(gain.point, digits)} "
        f"[{units.significant(gain.low, 2)}, {units.significant(gain.high, 2)}]"
    )


def lever_tables(levers: Levers | None) -> tuple[Table, ...]:
    """For the page: helpful switches, the others with the reason, and the crossings."""
    if levers is None:
        return ()
    tables = (_helpful(levers), _unhelpful(levers), _crossings(levers))
    return tuple(table for table in tables if table.rows)


def _helpful(levers: Levers) -> Table:
    return Table(
        caption="Predicted, best first, each with its interval. llmprof run MODEL --confirm KEY=VALUE measures it",
        columns=("lever", "setting", "tok/s", "of phase", "step", "other phase", "tier", "then"),
        rows=tuple(
            (
                one_line(one.label),
                one_line(f"{one.change.key}={one.change.target}"),
                _gain(one.gain),
                one.phase.value,
                _gain(one.step_speedup),
                _gain(one.other_phase_gain) if one.other_phase_gain else "-",
                one.tier.value,
                f"{units.percent(one.then_share)} {LIMIT_NAMES[one.then]}",
            )
            for one in levers.helpful
        ),
        prose=frozenset({1, 3, 6, 7}),
    )


def _unhelpful(levers: Levers) -> Table:
    return Table(
        caption="What cannot help here, and why",
        columns=("lever", "setting", "reason"),
        rows=tuple(
            (
                one_line(one.label),
                one_line(f"{one.change.key}={one.change.target}"),
                one_line(one.reason),
            )
            for one in levers.unhelpful
        ),
        prose=frozenset({1, 2}),
    )


def _crossings(levers: Levers) -> Table:
    return Table(
        caption="Where limits change sides, by the counted work and the ceilings of this run",
        columns=("size", "value", "what happens there"),
        rows=tuple(
            (
                one.name.replace("_", " "),
                "-" if one.value is None else units.count(one.value),
                one_line(one.sentence),
            )
            for one in levers.crossings
        ),
        prose=frozenset({2}),
    )
