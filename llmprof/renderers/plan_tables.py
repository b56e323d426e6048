"""The tables of a plan: the terminal, the page and the Markdown show the same cells."""

from llmprof import units
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import one_line
from llmprof.schema.plan import Plan, PlanEffect, PlannedDecode, PlanPoint

_NONE = "-"
_DECODE_COLUMNS = ("tok/s", "each", "bound")


def tables(plan: Plan) -> tuple[Table, ...]:
    found = [context_table(plan), sequences_table(plan), effects_table(plan)]
    if plan.verification is not None:
        found += [compared_table(plan), runs_table(plan)]
    return tuple(found)


def context_table(plan: Plan) -> Table:
    return Table(
        caption=f"Sequences that fit, by context{_of_speed(plan)}",
        columns=("context", "sequences", "per sequence", "cache", *_columns(plan)),
        rows=tuple(
            (
                units.exact(point.context_tokens),
                units.exact(point.sequences),
                units.byte_count(point.sequence_bytes),
                units.byte_count(point.sequences * point.sequence_bytes),
                *_decode_cells(plan, point.decode),
            )
            for point in plan.by_context
        ),
    )


def sequences_table(plan: Plan) -> Table:
    return Table(
        caption=f"Longest context that fits, by sequences{_of_speed(plan)}",
        columns=("sequences", "context", "limit", "cache", *_columns(plan)),
        rows=tuple(
            (
                units.exact(point.sequences),
                units.exact(point.context_tokens),
                _limit(point),
                units.byte_count(point.sequences * point.sequence_bytes) if point.fits else _NONE,
                *_decode_cells(plan, point.decode),
            )
            for point in plan.by_sequences
        ),
        prose=frozenset({2}),
    )


def effects_table(plan: Plan) -> Table:
    reference = units.exact(plan.reference_context_tokens)
    possible = [effect for effect in plan.effects if effect.reason is None]
    return Table(
        caption=f"One thing changed, at {reference} tokens{_of_speed(plan)}",
        columns=("change", "weights", "per sequence", "sequences", *_columns(plan)),
        rows=tuple(
            (
                effect.label,
                _bytes(effect.weight_bytes),
                _bytes(effect.sequence_bytes),
                units.exact(effect.sequences or 0),
                *_decode_cells(plan, effect.decode),
            )
            for effect in possible
        ),
    )


def impossible_lines(plan: Plan) -> tuple[str, ...]:
    return tuple(
        f"{effect.label} cannot be planned: {one_line(effect.reason)}"
        for effect in plan.effects
        if effect.reason is not None
    )


def compared_table(plan: Plan) -> Table:
    check = plan.verification
    assert check is not None, "asked for before"
    work = f"{check.batch} x ({check.prompt_tokens} prompt + {check.output_tokens} output) tokens"
    return Table(
        caption=f"Planned against allocated by the engine on {one_line(check.device)}, {work}",
        columns=("what", "planned", "allocated", "difference"),
        rows=tuple(
            (
                one.name,
                units.exact(round(one.planned_bytes)),
                units.exact(one.allocated_bytes),
                _difference(one.planned_bytes, one.allocated_bytes),
            )
            for one in check.compared
        ),
    )


def runs_table(plan: Plan) -> Table:
    check = plan.verification
    assert check is not None, "asked for before"
    return Table(
        caption=f"Runs under a budget of {units.byte_count(check.budget_bytes)} for tensors",
        columns=("batch", "prompt tokens", "outcome", "live at most"),
        rows=tuple(
            (
                units.exact(run.batch),
                units.exact(run.prompt_tokens),
                "fitted" if run.fitted else "ran out",
                units.byte_count(run.peak_live_bytes),
            )
            for run in check.runs
        ),
        prose=frozenset({2}),
    )


def _difference(planned: float, allocated: int) -> str:
    if round(planned) == allocated:
        return "exact"
    return units.signed_percent(allocated / planned - 1) if planned else _NONE


def _bytes(value: float | None) -> str:
    return _NONE if value is None else units.byte_count(value)


def _limit(point: PlanPoint) -> str:
    if not point.fits:
        return "does not fit"
    return "model's positions" if point.limit == "positions" else "memory"


def _of_speed(plan: Plan) -> str:
    return "; speed predicted at the roof" if plan.rates else ""


def _columns(plan: Plan) -> tuple[str, ...]:
    if plan.rates is None:
        return ()
    return (*_DECODE_COLUMNS, *(("per 1M",) if plan.price_per_hour is not None else ()))


def _decode_cells(plan: Plan, decode: PlannedDecode | None) -> tuple[str, ...]:
    columns = _columns(plan)
    if decode is None:
        return (_NONE,) * len(columns)
    cells = [
        units.significant(decode.output_tokens_per_s),
        units.significant(decode.output_tokens_per_s_per_sequence),
        decode.bound.value,
    ]
    if decode.cost_per_million_tokens is not None:
        cells.append(units.significant(decode.cost_per_million_tokens))
    return tuple(cells)


def drawn_effects(plan: Plan) -> tuple[PlanEffect, ...]:
    """Those whose frontier differs from the plan's own and that can be planned."""
    base, *others = plan.effects
    changed = [one for one in others if one.reason is None and one.frontier != base.frontier]
    return (base, *changed)
