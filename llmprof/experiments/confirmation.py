"""Test the verdicts of a run: one thing is changed on purpose, steps with and without it take turns.

What each verdict forecasts, and whether that held, is worked out in `analysis.confirmation` from the
raw pairs that are recorded here.
"""

from llmprof.errors import CapabilityError, MeasurementFailedError
from llmprof.experiments.intervention_bench import InterventionBench
from llmprof.experiments.interventions import INTERVENTIONS
from llmprof.schema.cost import Phase
from llmprof.schema.intervention import Intervention
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.progress import NullProgress, Progress

PAIRS = 6
"""From here on min..max of the pairs' ratios covers their median with 95 %."""


def confirm_verdicts(
    config: RunConfig,
    record: RunRecord,
    *,
    progress: Progress | None = None,
    pairs: int | None = None,
) -> RunRecord:
    """The record with every intervention that this device and these settings allow.

    One that fails is recorded with the reason. An interrupt keeps those that are complete, and makes
    the record partial.

    Raises:
        LlmprofError: the model cannot be loaded again.
    """
    progress = progress or NullProgress()
    made: list[Intervention] = []
    try:
        bench = InterventionBench.open(config, record, pairs=pairs or PAIRS)
        for done, (kind, intervene) in enumerate(INTERVENTIONS.items()):
            progress.update("interventions", done, len(INTERVENTIONS))
            try:
                made += intervene(bench)
            except (CapabilityError, MeasurementFailedError) as error:
                failed = Intervention(
                    kind=kind, phase=Phase.DECODE, change=kind.value, skipped=str(error)
                )
                made.append(failed)
        progress.update("interventions", len(INTERVENTIONS), len(INTERVENTIONS))
    except KeyboardInterrupt:
        reason = f"interrupted while its verdicts were tested, after {len(made)} interventions"
        record = record.model_copy(update={"status": "partial", "status_reason": reason})
    return record.model_copy(update={"interventions": tuple(made)})
