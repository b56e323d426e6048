"""The verdicts of the base run, tested by changing one thing at a time."""

from llmprof.analysis.report import build_report
from llmprof.experiments.confirmation import confirm_verdicts
from llmprof.store.runs import find_run, save_run
from scripts.gpu.job import Job, read_found

_PAIRS = 4


def try_verdicts(job: Job) -> None:
    """On the eager run of the base where there is one: a graph has no host left to test."""
    cells = read_found(job.folder)
    for name in ("cell-eager", "cell-base"):
        if "run" in cells.get(name, {}):
            record = find_run(cells[name]["run"])
            break
    else:
        job.found("verdicts", {"not_measured": "the base was not measured"})
        return
    confirmed = confirm_verdicts(record.settings, record, pairs=_PAIRS)
    save_run(confirmed)
    outcomes = [
        {"phase": verdict.phase.value, **outcome.model_dump(mode="json")}
        for verdict in build_report(confirmed).verdicts
        for outcome in verdict.interventions
    ]
    job.found("verdicts", {"run": confirmed.id, "outcomes": outcomes})
