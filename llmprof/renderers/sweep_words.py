"""Axes, values and outcomes of a sweep in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llmprof import units
from llmprof.renderers.wording import one_line
from llmprof.schema.measurement import Estimate
from llmprof.schema.settings import GridValue, SweepSettings
from llmprof.schema.sweep import BatchChoice, CellStatus, Sweep, SweepAxis, SweepCell

_NAMES: Final = {
    "attention.kind": "attention",
    "batching.policy": "batching",
    "execution.fused": "fused kernels",
    "execution.mode": "execution",
    "kv_cache.dtype": "KV dtype",
    "kv_cache.layout": "KV layout",
    "kv_cache.memory_bytes": "KV budget",
    "weights.dtype": "weight dtype",
    "weights.source": "weights",
}


def axis_name(key: str) -> str:
    """`workload.prompt_tokens` -> "prompt tokens"."""
    return _NAMES.get(key, key.rpartition(".")[2].replace("_", " "))


def axis_names(axes: Sequence[SweepAxis]) -> tuple[str, ...]:
    """The whole key where two axes would read the same."""
    names = [axis_name(axis.key) for axis in axes]
    return tuple(
        axis.key if names.count(name) > 1 else name for axis, name in zip(axes, names, strict=True)
    )


def value_text(value: GridValue) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return one_line(value)
    return units.exact(value)


def spelled(changes: Mapping[str, GridValue]) -> str:
    """A cell as a person says it: batch 4, prompt tokens 512."""
    return ", ".join(f"{axis_name(key)} {value_text(value)}" for key, value in changes.items())


def unmeasured(sweep: Sweep) -> dict[tuple[str, str], list[SweepCell]]:
    """Cells that do not have all their rounds, by status and reason."""
    found: dict[tuple[str, str], list[SweepCell]] = {}
    for cell in sweep.cells:
        if cell.status is not CellStatus.MEASURED:
            reason = one_line(cell.reason or "not measured yet")
            found.setdefault((cell.status.value, reason), []).append(cell)
    return found


def outcome_lines(sweep: Sweep) -> tuple[str, ...]:
    """One line per reason, with the cells it holds for."""
    return tuple(
        f"{status}: {'; '.join(spelled(cell.changes) for cell in cells)}: {reason}"
        for (status, reason), cells in unmeasured(sweep).items()
    )


def choice_lines(sweep: Sweep) -> tuple[str, ...]:
    """The knee of each line over the batch, and the largest batch within the limits."""
    return tuple(_choice(choice, sweep.base.sweep) for choice in sweep.choices)


def _choice(choice: BatchChoice, limits: SweepSettings) -> str:
    where = f" at {spelled(choice.others)}" if choice.others else ""
    name = axis_name(choice.key)
    edge = " (the largest measured, so it may lie beyond)" if choice.knee_at_edge else ""
    text = f"knee{where}: {name} {value_text(choice.knee)}{edge}"
    if asked := limits_text(limits):
        within = choice.largest_within
        found = f"no {name}" if within is None else f"{name} {value_text(within)} at most"
        text += f"; {asked}: {found}"
    return text


def limits_text(limits: SweepSettings) -> str:
    """For example TTFT ≤ 200 ms, TPOT ≤ 50.0 ms; empty without a limit."""
    named = (("TTFT", limits.ttft_max_s), ("TPOT", limits.tpot_max_s))
    return ", ".join(f"{name} ≤ {units.seconds(limit)}" for name, limit in named if limit)


def headline(sweep: Sweep) -> str:
    """The cell with most output beside the one with least; what a switch gives where all else is equal."""
    rated = [(rate, cell) for cell in sweep.cells if (rate := _rate(cell)) is not None]
    left_out = [cell for cell in sweep.cells if cell.metrics and cell.metrics.disturbed]
    if not rated:
        return _none_to_name(left_out) if left_out else "No cell gives output tokens."
    told = _most_and_least(sweep, rated)
    if left_out:
        cells = "; ".join(spelled(cell.changes) for cell in left_out)
        told += f" Left out, since every round was disturbed: {cells} ({_disturbance(left_out)})."
    return told


def _none_to_name(disturbed: Sequence[SweepCell]) -> str:
    which = (
        "the one measured cell" if len(disturbed) == 1 else f"all {len(disturbed)} measured cells"
    )
    return (
        f"No cell can be named best: every round of {which} was disturbed "
        f"({_disturbance(disturbed)}). Stop other programs and measure again (--fresh)."
    )


def _disturbance(cells: Sequence[SweepCell]) -> str:
    found = {reason for cell in cells if cell.metrics for reason in cell.metrics.disturbed_by}
    return ", ".join(map(one_line, sorted(found))) or "contended or throttled"


def _most_and_least(sweep: Sweep, rated: Sequence[tuple[Estimate, SweepCell]]) -> str:
    best_rate, best = max(rated, key=lambda pair: pair[0].point)
    least_rate, least = min(rated, key=lambda pair: pair[0].point)
    most = f"{units.significant(best_rate.point)} output tok/s at {spelled(best.changes)}"
    if best is least:
        return f"{most}."
    if best_rate.low <= least_rate.high:
        low, high = units.significant(least_rate.point), units.significant(best_rate.point)
        return f"No cell is shown to give more output than another: {low} to {high} tok/s, intervals overlap."
    ratio = units.ratio(best_rate.point / least_rate.point)
    told = (
        f"Most output: {most}, {ratio} the least "
        f"({units.significant(least_rate.point)} at {spelled(least.changes)})."
    )
    return " ".join([told, *_switch_gains(sweep)])


def _switch_gains(sweep: Sweep) -> Iterator[str]:
    """Of a grid with sizes: what each word of a switch gives over the first, all else equal."""
    for axis in sweep.axes if len(sweep.axes) > 1 else ():
        first, *others = axis.values
        if not all(isinstance(value, str) for value in axis.values):
            continue
        name = axis_name(axis.key)
        for other in others:
            gains = _shown_gains(sweep.cells, axis.key, first, other)
            if gains:
                span = " to ".join(dict.fromkeys(map(units.ratio, (min(gains), max(gains)))))
                yield (
                    f"{name[0].upper()}{name[1:]} {value_text(other)} gives {span} the output tok/s "
                    f"of {value_text(first)}, all else equal."
                )


def _shown_gains(
    cells: Sequence[SweepCell], key: str, first: GridValue, other: GridValue
) -> list[float]:
    """Ratios of the cells that differ in that key alone; none unless the intervals of each are apart."""
    rates = {_place(cell.changes): rate for cell in cells if (rate := _rate(cell))}
    pairs = [
        (rates[place], rates[base])
        for place in rates
        if dict(place)[key] == other and (base := _place({**dict(place), key: first})) in rates
    ]
    if any(one.low <= base.high and base.low <= one.high for one, base in pairs):
        return []
    return [one.point / base.point for one, base in pairs]


def _place(changes: Mapping[str, GridValue]) -> tuple[tuple[str, GridValue], ...]:
    return tuple(sorted(changes.items()))


def _rate(cell: SweepCell) -> Estimate | None:
    """None of disturbed rounds: the table shows theirs, no sentence compares it."""
    judged = cell.metrics is not None and not cell.metrics.disturbed
    return cell.metrics.output_tokens_per_s if cell.metrics and judged else None


def caveat_lines(sweep: Sweep) -> tuple[str, ...]:
    """Codes of the cells' caveats, the most frequent first; the run files have the words."""
    having = [cell for cell in sweep.cells if cell.metrics is not None]
    codes: dict[str, int] = {}
    for cell in having:
        for code in cell.metrics.caveats if cell.metrics else ():
            codes[code] = codes.get(code, 0) + 1
    ordered = sorted(codes.items(), key=lambda pair: -pair[1])
    return tuple(
        f"{one_line(code)} ({'all' if count == len(having) else f'{count} of {len(having)}'} cells)"
        for code, count in ordered
    )


def sweep_stamps(sweep: Sweep) -> tuple[str, ...]:
    """What must be seen before any number."""
    found = []
    if sweep.status == "partial":
        found.append(f"PARTIAL SWEEP: {one_line(sweep.status_reason or 'not finished')}")
    if any(cell.metrics and "random-weights" in cell.metrics.caveats for cell in sweep.cells):
        found.append("RANDOM WEIGHTS")
    return tuple(found)
