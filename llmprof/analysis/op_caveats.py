"""What a reader must know to read a table of ops correctly."""

from collections.abc import Iterable, Sequence

from llmprof import units
from llmprof.analysis.trace_checks import MAX_UNMAPPED_FRACTION
from llmprof.analysis.validity import select_rounds
from llmprof.schema.measurement import Caveat
from llmprof.schema.ops import PhaseOps
from llmprof.schema.run import RunRecord

MAX_EXCESS = 0.03
"""Of the clean step: by so much the traced ops may take longer than the whole of it."""


def op_caveats(record: RunRecord, tables: Sequence[PhaseOps]) -> tuple[Caveat, ...]:
    return (
        *_untraced(record, tables),
        *_contended(record, tables),
        *(caveat for table in tables for caveat in _of_phase(table)),
    )


def _untraced(record: RunRecord, tables: Sequence[PhaseOps]) -> Iterable[Caveat]:
    """A profiler that may not record kernels gives none, and no error."""
    if record.trace is None:
        return
    shown = {table.phase for table in tables}
    for phase in record.phases:
        if phase not in shown:
            yield Caveat(
                code="trace-empty",
                message="the tracing pass recorded no op of this phase, or no ceiling beside it",
                remedy="On CUDA, see that CUPTI may record (llmprof doctor).",
                phase=phase,
            )


def _contended(record: RunRecord, tables: Sequence[PhaseOps]) -> Iterable[Caveat]:
    """Of three rounds one that was disturbed moves the median already."""
    reasons = select_rounds(record.traced).reasons
    for table in tables if reasons else ():
        yield Caveat(
            code="trace-contended",
            message=f"{len(reasons)} of {len(record.traced)} traced rounds were disturbed "
            f"({', '.join(sorted(set(reasons.values())))}): the times of single ops are those of a "
            "busy machine",
            remedy="Stop other programs, or give the run fewer threads (execution.threads).",
            phase=table.phase,
        )


def _of_phase(table: PhaseOps) -> Iterable[Caveat]:
    if table.unmapped_fraction > MAX_UNMAPPED_FRACTION:
        yield Caveat(
            code="trace-unmapped",
            message=f"{units.percent(table.unmapped_fraction)} of the traced op time belongs to no "
            "op group: the table of ops does not show where it goes",
            phase=table.phase,
        )
    if table.between_s < -MAX_EXCESS * table.step_s:
        yield Caveat(
            code="trace-slower",
            message=f"the traced ops take {units.ratio(table.busy_s.point / table.step_s)} the clean "
            "step: their times and losses are those of a slower moment",
            remedy="Quiet the machine and run again.",
            phase=table.phase,
        )
    above = [entry for entry in table.entries if entry.loss_s.point < -MAX_EXCESS * table.step_s]
    if above:
        names = ", ".join(f"{entry.op} of {entry.group.label}" for entry in above)
        yield Caveat(
            code="trace-above-roof",
            message=f"{names}: faster than the roof, so bytes that a cache served are counted, or the "
            "ceiling beside the traced rounds was read too low; their loss is shown as it is",
            phase=table.phase,
        )
