"""Whether the tracing pass saw the step that the clean pass timed: else no split of it can be trusted.

Only for a run that was traced: it must not be surer than one that was not, whose op times nobody
checked, and what the trace contradicts is contradicted.
"""

from collections.abc import Iterator
from typing import Final

from llmprof import units
from llmprof.analysis.checks import Check
from llmprof.schema.ops import PhaseOps
from llmprof.schema.trace import TraceClock

MAX_UNMAPPED_FRACTION: Final = 0.05
MAX_DEVICE_DIFFERENCE: Final = 0.03
"""Of the clean device time: kernels run alike, whatever the host does meanwhile."""
MAX_HOST_EXCESS: Final = 0.15
"""On a CPU the ops share the cores with whatever slows a moment down, as groups do: the same bound as
for the grouped pass. Below the clean step they may be by any amount: the rest is interpreter."""


def trace_checks(table: PhaseOps | None, device_s: float | None) -> tuple[Check, ...]:
    """Of the ops of a phase beside its clean step; `device_s` is the step's by the device's clock."""
    if table is None:
        return ()
    found = [_mapped(table), _no_longer(table, device_s)]
    if table.clock is TraceClock.DEVICE:
        found += _nothing_lost(table, device_s)
    return tuple(found)


def _mapped(table: PhaseOps) -> Check:
    return Check(
        statement="traced ops belong to an op group (share of their time that does not)",
        observed=table.unmapped_fraction,
        threshold=MAX_UNMAPPED_FRACTION,
        holds=table.unmapped_fraction <= MAX_UNMAPPED_FRACTION,
        reason=f"{units.percent(table.unmapped_fraction)} of the traced op time belongs to no op "
        "group",
    )


def _no_longer(table: PhaseOps, device_s: float | None) -> Check:
    on_device = table.clock is TraceClock.DEVICE
    whole_s = _clean_s(table, device_s)
    most = MAX_DEVICE_DIFFERENCE if on_device else MAX_HOST_EXCESS
    excess = table.busy_s.point / whole_s - 1
    return Check(
        statement="traced ops take no longer than the clean step (excess)",
        observed=excess,
        threshold=most,
        holds=excess <= most,
        reason=f"the traced ops take {units.percent(excess)} more than the clean step"
        + ("'s device time" if on_device and device_s is not None else ""),
    )


def _nothing_lost(table: PhaseOps, device_s: float | None) -> Iterator[Check]:
    """What kernels and the gaps between them leave of the device's time, nobody recorded.

    Gaps are those of the traced step, which launches slower, so they are rather too long.
    """
    if table.idle_s is None or device_s is None:
        return
    lost = 1 - (table.busy_s.point + table.idle_s) / device_s
    yield Check(
        statement="traced kernels and gaps make up the clean device time (share that is left)",
        observed=lost,
        threshold=MAX_DEVICE_DIFFERENCE,
        holds=lost <= MAX_DEVICE_DIFFERENCE,
        reason=f"{units.percent(lost)} of the clean device time is in no traced kernel and in no gap "
        "between them",
    )


def _clean_s(table: PhaseOps, device_s: float | None) -> float:
    if table.clock is TraceClock.DEVICE and device_s is not None:
        return device_s
    return table.step_s
