"""`llmprof run --confirm`: predict a switch, write it down, flip it, and explain the difference."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from llmprof.analysis.confirmation import confirm
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.prediction_target import target_of_run
from llmprof.engine.device import resolve_device
from llmprof.errors import CapabilityError, InputError
from llmprof.experiments.kernel_benchmarks import benchmark_kernels
from llmprof.experiments.paired import measure_pairs
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
        CapabilityError: the target cannot run, or memory does not hold both.
        MeasurementFailedError: memory ran out.
    """
    progress = progress or NullProgress()
    prediction = predict_with_benchmarks(record, target, progress=progress)
    if not prediction.changes:
        raise InputError("--confirm changes nothing", remedy="Name a key and another value")
    if not prediction.capacity.fits:
        raise CapabilityError(prediction.caveats[0].message, remedy=prediction.caveats[0].remedy)
    predicted_at, path = write_prediction(prediction, record.id)
    for one in prediction.phases:
        if one.speedup is not None:
            progress.note(f"predicted {one.phase.value}: {ratio(one.speedup.point)} (in {path})")
    if told is not None:
        told(prediction)
    pairs = measure_pairs(record.settings, target, argv=argv, progress=progress)
    save_run(pairs.base)
    save_run(pairs.target)
    return confirm(prediction, pairs.base, pairs.target, pairs.outputs, predicted_at=predicted_at)


def write_prediction(prediction: Prediction, run_id: str) -> tuple[datetime, Path]:
    """Beside the runs, before anything of the target is measured."""
    folder = runs_folder().parent / "predictions"
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{run_id}-{now:%H%M%S}.json"
    write_document(path, prediction)
    return now, path
