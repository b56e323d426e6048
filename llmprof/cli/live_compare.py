"""`llmprof compare CONFIG --base ... --cand ...`: both arms measured in turn on this machine."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmprof.architectures.source import check_source
from llmprof.cli import streams
from llmprof.cli.interrupts import signals_interrupt
from llmprof.cli.switched import check_unlike, switched
from llmprof.errors import MeasurementFailedError
from llmprof.schema.settings import RunConfig

if TYPE_CHECKING:
    from llmprof.schema.comparison import Comparison


def arms(
    config: RunConfig, base: Sequence[str], cand: Sequence[str]
) -> tuple[RunConfig, RunConfig]:
    """Settings of the baseline and of the candidate.

    Raises:
        InputError: a wrong change, or two that come to the same.
    """
    baseline = switched(config, base, option="--base") if base else config
    candidate = switched(config, cand, option="--cand") if cand else config
    check_unlike(baseline, candidate, told="--base and --cand: from one to the other")
    return baseline, candidate


def measured(baseline: RunConfig, candidate: RunConfig, *, quiet: bool) -> "Comparison":
    """Run the baseline, predict the candidate from it, then measure both in turn. All runs are saved.

    Raises:
        LlmprofError: what a run raises.
        KeyboardInterrupt: it says what was saved.
    """
    for arm in (baseline, candidate):
        check_source(arm)
    from llmprof.experiments.confirm import compare_switch
    from llmprof.profiler import profile
    from llmprof.store.runs import check_runs_writable, save_run

    argv = ("llmprof", *sys.argv[1:])
    check_runs_writable()
    with signals_interrupt() as interrupts, streams.progress_on_stderr(quiet=quiet) as progress:
        record = profile(baseline, argv=argv, progress=progress, before_saving=interrupts.hold)
        saved = os.path.relpath(save_run(record))
        try:
            interrupts.release()
            if record.failed:
                raise MeasurementFailedError(f"{record.status_reason}; what there is: {saved}")
            if record.status == "partial":
                raise KeyboardInterrupt
            return compare_switch(record, candidate, argv=argv, progress=progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"the baseline's run is saved in {saved}") from None
