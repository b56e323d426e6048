"""Predict a switch, write it down, flip it, and explain the difference: `compare --cand`, `run --confirm`."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from llmprof.analysis.compare import compare_live
from llmprof.analysis.confirmation import confirm
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.prediction_target import target_of_run
from llmprof.analysis.report import build_report
from llmprof.engine.device import resolve_device
from llmprof.errors import CapabilityError, DoesNotFitError, InputError
from llmprof.experiments.kernel_benchmarks import benchmark_kernels
from llmprof.experiments.paired import PairedRuns, measure_pairs
from llmprof.schema.comparison import Comparison
from llmprof.schema.confirmation import Confirmation
from llmprof.schema.prediction import Prediction
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.documents import write_document
from llmprof.store.progress import NullProgress, Progress
from llmprof.store.runs import runs_folder, save_run
from llmprof.units import ratio


def predict_with_benchmarks(
    record: RunRecord, target: RunConfig, *, progress: Progress | None = None
) -> Prediction:
    """Measure by itself every kernel that changes, on the device of the run, and predict: tier C.

    Raises:
        InputError, CapabilityError: settings that cannot be predicted, or cannot run here.
    """
    base = BaseRun.of(record)
    wanted = target_of_run(record, target)
    phases = [phase for phase in wanted.phases if phase in base.cases]
    device = resolve_device(record.environment.device)
    benchmarks = benchmark_kernels(base.target, wanted, phases, device=device, progress=progress)
    return predict(base, target, benchmarks=benchmarks)


def confirm_switch(
    record: RunRecord,
    target: RunConfig,
    *,
    argv: tuple[str, ...] = (),
    progress: Progress | None = None,
    told: Callable[[Prediction], None] | None = None,
) -> Confirmation:
    """Predict `target` from a finished base run, then measure both in turn.

    The prediction is on disk before the target is loaded; `told` hears of it then. Both paired runs
    are saved.

    Raises:
        InputError: nothing changes, or settings that cannot be predicted.
        CapabilityError: the target cannot run.
        MeasurementFailedError: memory ran out.
    """
    progress = progress or NullProgress()
    written = _predicted(record, target, progress)
    if told is not None:
        told(written.prediction)
    return written.confirmed(_measured_pairs(record, target, argv, progress))


def compare_switch(
    record: RunRecord,
    target: RunConfig,
    *,
    argv: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Comparison:
    """As `confirm_switch`, with every metric over the pairs; what cannot be predicted is measured only.

    Raises:
        CapabilityError: the target cannot run.
        MeasurementFailedError: memory ran out.
    """
    progress = progress or NullProgress()
    written, reason = None, None
    try:
        written = _predicted(record, target, progress)
    except DoesNotFitError:
        raise
    except (InputError, CapabilityError) as error:
        reason = error.message
        progress.note(f"no prediction: {reason}")
    pairs = _measured_pairs(record, target, argv, progress)
    return compare_live(
        build_report(pairs.base),
        build_report(pairs.target),
        pairs.outputs,
        pairs.arrangement,
        confirmation=None if written is None else written.confirmed(pairs),
        not_predicted=reason,
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """A prediction that is on disk."""

    prediction: Prediction
    at: datetime

    def confirmed(self, pairs: PairedRuns) -> Confirmation:
        return confirm(
            self.prediction, pairs.base, pairs.target, pairs.outputs, predicted_at=self.at
        )


def _predicted(record: RunRecord, target: RunConfig, progress: Progress) -> _Written:
    """Before the target is loaded for its rounds.

    Raises:
        InputError, CapabilityError: settings that cannot be predicted.
        DoesNotFitError: memory does not hold the target alone.
    """
    prediction = predict_with_benchmarks(record, target, progress=progress)
    if not prediction.changes:
        raise InputError("--confirm changes nothing", remedy="Name a key and another value")
    if not prediction.capacity.fits:
        caveat = prediction.caveats[0]
        raise DoesNotFitError(caveat.message, remedy=caveat.remedy)
    at, path = write_prediction(prediction, record.id)
    for one in prediction.phases:
        if one.speedup is not None:
            progress.note(f"predicted {one.phase.value}: {ratio(one.speedup.point)} (in {path})")
    return _Written(prediction, at)


def _measured_pairs(
    record: RunRecord, target: RunConfig, argv: tuple[str, ...], progress: Progress
) -> PairedRuns:
    """Measured in turn and saved, as runs that `llmprof report` can show."""
    pairs = measure_pairs(record.settings, target, argv=argv, progress=progress)
    save_run(pairs.base)
    save_run(pairs.target)
    return pairs


def write_prediction(prediction: Prediction, run_id: str) -> tuple[datetime, Path]:
    """Beside the runs, before anything of the target is measured."""
    folder = runs_folder().parent / "predictions"
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{run_id}-{now:%H%M%S}.json"
    write_document(path, prediction)
    return now, path
