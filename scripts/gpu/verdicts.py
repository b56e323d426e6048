"""The verdicts of the base run, tested by changing one thing at a time."""

import math
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from llmprof.analysis.report import build_report
from llmprof.experiments.confirmation import confirm_verdicts
from llmprof.instruments.sm_partition import half_of
from llmprof.schema.intervention import Intervention, InterventionKind
from llmprof.schema.run import RunRecord
from llmprof.store.runs import find_run, save_run
from scripts.gpu.job import Job, read_found

_PAIRS = 4
EXPECTED: Final = {"decode": (-0.10, 0.40), "prefill": (0.70, 1.10)}
"""How a step's time goes with the inverse of the multiprocessors, as an exponent, said before anything
is measured: half of them still read most of what memory gives, and multiply half as fast."""
_KINDS: Final = (
    InterventionKind.FEWER_SMS,
    InterventionKind.QUEUE_AHEAD,
    InterventionKind.HOST_SLEEP,
    InterventionKind.REPLAY,
    InterventionKind.LONGER_CONTEXT,
    InterventionKind.CACHE_RESIDENT,
)
"""In order of worth."""


def try_verdicts(job: Job) -> None:
    """On the eager run of the base where there is one: a graph has no host left to test.

    What is expected is written down first, and every outcome as soon as it is there.
    """
    job.found("verdicts-expected", EXPECTED)
    cells = read_found(job.folder)
    for name in ("cell-eager", "cell-base"):
        if "run" in cells.get(name, {}):
            record = find_run(cells[name]["run"])
            break
    else:
        job.found("verdicts", {"not_measured": "the base was not measured"})
        return
    confirm_verdicts(
        record.settings,
        record,
        pairs=_PAIRS,
        kinds=_KINDS,
        told=lambda confirmed: _keep(job, confirmed),
    )


def _keep(job: Job, confirmed: RunRecord) -> None:
    save_run(confirmed)
    outcomes = [
        {"phase": verdict.phase.value, **outcome.model_dump(mode="json")}
        for verdict in build_report(confirmed).verdicts
        for outcome in verdict.interventions
    ]
    found = {"run": confirmed.id, "outcomes": outcomes, "exponents": dict(_exponents(confirmed))}
    job.found("verdicts", found)


def _exponents(confirmed: RunRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    gpu = confirmed.environment.gpu
    if gpu is None:
        return
    fewer = gpu.multiprocessors / half_of(gpu.multiprocessors)
    for one in confirmed.interventions:
        if one.kind is InterventionKind.FEWER_SMS and one.base_step_s:
            low, high = EXPECTED[one.phase.value]
            exponent = exponent_of(one, fewer)
            yield (
                one.phase.value,
                {"exponent": exponent, "expected": [low, high], "met": low <= exponent <= high},
            )


def exponent_of(one: Intervention, fewer: float) -> float:
    """`e` of time ~ fewer^e, where the device became `fewer` times as small: 0 if nothing changed."""
    pairs = zip(one.base_step_s, one.changed_step_s, strict=True)
    return math.log(median(changed / base for base, changed in pairs)) / math.log(fewer)
