"""The ops of a step in figures: the same rows for the page, Markdown and the terminal."""

from llmprof import units
from llmprof.renderers.estimates import interval, shared_confidence
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import one_line
from llmprof.schema.ledger import Side
from llmprof.schema.ops import OpEntry, PhaseOps
from llmprof.schema.trace import TraceClock


def ops_table(table: PhaseOps) -> Table:
    """Every op against its roof, the largest loss first."""
    return Table(
        caption=f"{ops_summary(table)} ({shared_confidence(e.loss_s for e in table.entries)})",
        columns=(
            "op",
            "op group",
            "loss",
            "loss interval",
            "of the step",
            "time",
            "roof",
            "fixed cost",
            "calls",
            "side",
            "bytes",
            "FLOP",
            "bytes/s",
            "FLOP/s",
        ),
        rows=tuple(_row(entry, table) for entry in table.entries),
        prose=frozenset({1, 9}),
    )


def ops_summary(table: PhaseOps) -> str:
    """How many ops, how long they take, and what lies between them."""
    what = "ops" if table.clock is TraceClock.HOST else "kernels"
    words = (
        f"{table.phase.value}: {units.count(table.ops_per_step)} {what} per step, "
        f"{units.significant(table.ops_per_token)} per token, {units.seconds(table.mean_op_s)} each "
        f"in the mean; {units.seconds(table.busy_s.point)} of a step of "
        f"{units.seconds(table.step_s)} in {what}, {units.seconds(table.between_s)} between them"
    )
    if table.host_wait_s is not None:
        words += f"; the device waited {units.seconds(table.host_wait_s)} for the host"
    return f"{words}; {units.percent(table.unmapped_fraction)} belong to no op group"


def op_name(entry: OpEntry) -> str:
    """`gate/up projection: llmprof.matvec`."""
    return f"{entry.group.label}: {one_line(entry.op)}"


def op_rate(entry: OpEntry) -> str:
    """On the longer link; nothing for work in cache."""
    if entry.side is Side.COMPUTE and entry.achieved_flops_per_s is not None:
        return units.flops_per_s(entry.achieved_flops_per_s)
    if entry.side is Side.MEMORY and entry.achieved_bytes_per_s is not None:
        return units.bytes_per_s(entry.achieved_bytes_per_s)
    return ""


def _row(entry: OpEntry, table: PhaseOps) -> tuple[str, ...]:
    return (
        one_line(entry.op),
        entry.group.label,
        units.seconds(entry.loss_s.point),
        interval(entry.loss_s, units.seconds),
        units.percent(entry.time_s.point / table.step_s),
        units.seconds(entry.time_s.point),
        units.seconds(entry.roof_s),
        units.seconds(entry.fixed_cost_s),
        units.count(entry.calls),
        entry.side.value if entry.side else "in cache",
        units.decimal_bytes(entry.roof_bytes),
        units.flops(entry.flops),
        _given(entry.achieved_bytes_per_s, units.bytes_per_s(entry.achieved_bytes_per_s or 0.0)),
        _given(entry.achieved_flops_per_s, units.flops_per_s(entry.achieved_flops_per_s or 0.0)),
    )


def _given(value: float | None, text: str) -> str:
    return "none" if value is None else text
