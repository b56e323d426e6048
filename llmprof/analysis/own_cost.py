"""What the instruments themselves cost a step, as a share of it."""

from collections.abc import Sequence
from typing import Final

from llmprof import units
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Caveat, PhaseMeasurement
from llmprof.schema.report import OwnCostShare
from llmprof.schema.run import RunRecord

MAX_FRACTION: Final = 0.01
"""Of a step of the clean pass."""


def own_cost_share(record: RunRecord, phases: Sequence[PhaseMeasurement]) -> OwnCostShare | None:
    """Of a decode step, the shortest and so the one that feels them most; else of the last phase.

    Without a grouped pass nobody counted how often a step calls the empty hooks: they are left out.
    """
    found = [one for one in phases if one.phase is Phase.DECODE] or list(phases[-1:])
    if not found:
        return None
    own, step_s = record.own_cost, found[0].step_s.point
    num_steps = sum(len(one.steps) for one in record.rounds)
    hooks_s = own.probe_calls_per_step * own.seconds_per_empty_call
    clean_s = own.seconds_per_step + hooks_s + own.sampler_cpu_s / num_steps
    return OwnCostShare(
        phase=found[0].phase,
        step_s=step_s,
        clean_s=clean_s,
        clean_fraction=clean_s / step_s,
        grouped_s=own.probe_calls_per_step * own.seconds_per_probe_call if record.grouped else None,
    )


def own_cost_caveats(share: OwnCostShare | None) -> tuple[Caveat, ...]:
    if share is None or share.clean_fraction <= MAX_FRACTION:
        return ()
    return (
        Caveat(
            code="own-cost",
            message=f"the instruments take {units.seconds(share.clean_s)} of a step of the clean "
            f"pass, {units.percent(share.clean_fraction)} of it: nothing is subtracted",
            remedy="Measure a larger model or batch.",
            phase=share.phase,
        ),
    )
