"""How to profile a saved run with Nsight Compute: one command for each phase, ready to type."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from llmprof.analysis.ncu import metrics_for
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.cost import Phase
from llmprof.schema.ncu import NcuCommand, NcuCommands
from llmprof.schema.run import EngineDescription, RunRecord
from llmprof.schema.settings import Pass, RunConfig
from llmprof.store.setting_keys import all_keys

_OF_THE_PROFILE: Final = {
    "measure.warmup": 1,
    "measure.rounds": 1,
    "measure.passes": [Pass.CLEAN.value, Pass.NVTX.value],
}
"""Only the round with ranges is profiled: the others need not be repeated under ncu."""
_NOT_OF_A_RUN: Final = ("model", "measure.confirm", "gate.", "sweep.")


def ncu_commands(record: RunRecord, phase: Phase | None = None) -> NcuCommands:
    """Commands that profile the steps of `phase` (or of each phase) of the same model and settings.

    Raises:
        CapabilityError: the run is none that ncu can repeat.
        InputError: it has no such phase.
    """
    _check_repeatable(record)
    steps = Counter(step.shape.phase for step in record.rounds[0].steps)
    wanted = [one for one in Phase if steps[one] and phase in (None, one)]
    if not wanted:
        raise InputError(f"run {record.id} has no {phase.value if phase else 'step'}")
    return NcuCommands(
        run_id=record.id,
        commands=tuple(_command(record, one, steps[one]) for one in wanted),
    )


def _check_repeatable(record: RunRecord) -> None:
    settings = record.settings
    why, remedy = None, "Name another run: --run ID"
    if record.environment.gpu is None:
        why = "it was on a CPU, and ncu profiles kernels of a GPU"
    elif record.model is None or not record.rounds:
        why = "it holds no round of a model"
    elif settings.workload.arrival_rate_per_s is not None:
        why = "its requests arrive by the clock, and under ncu other steps would come of them"
        remedy = "Measure it without workload.arrival_rate_per_s"
    elif settings.parallel.tensor > 1:
        why = "ncu repeats each kernel, and one that waits for another rank cannot be repeated"
        remedy = "Measure it with parallel.tensor=1"
    if why is not None:
        raise CapabilityError(f"run {record.id} cannot be profiled by ncu: {why}", remedy=remedy)


def _command(record: RunRecord, phase: Phase, steps: int) -> NcuCommand:
    file = f"counters.{phase.value}.csv"
    ncu = [
        *("ncu", "--nvtx", "--nvtx-include", f"llmprof.{phase.value}/"),
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--cache-control", "none", "--clock-control", "none"),
        *("--metrics", ",".join(metrics_for(*_dtypes(record.engine)))),
        *("--log-file", file),
    ]
    run = ["llmprof", "run", record.settings.model, "--quiet", *_sets(record.settings)]
    compare = ["llmprof", "ncu", file, "--run", record.id, "--steps", str(steps)]
    return NcuCommand(
        phase=phase, steps=steps, profile=shlex.join(ncu + run), compare=shlex.join(compare)
    )


def _dtypes(engine: EngineDescription) -> tuple[str, ...]:
    """Multiplied in."""
    return (engine.compute_dtype, "fp8") if engine.fp8_arithmetic else (engine.compute_dtype,)


def _sets(config: RunConfig) -> Iterator[str]:
    """`--set key=value` of all that is not as it is by default, and of what a profile needs."""
    defaults = RunConfig(model=config.model)
    tree = config.model_dump(mode="json")
    values = {
        key: _at(tree, key)
        for key in all_keys()
        if not key.startswith(_NOT_OF_A_RUN)
        and attrgetter(key)(config) != attrgetter(key)(defaults)
    }
    for key, value in {**values, **_OF_THE_PROFILE}.items():
        yield from ("--set", f"{key}={_text(value)}")


def _at(tree: dict[str, object], key: str) -> object:
    value: object = tree
    for part in key.split("."):
        assert isinstance(value, dict), "a dotted key names groups, and then a value"
        value = value[part]
    return value


def _text(value: object) -> str:
    """As YAML reads it: words as they are, the rest as JSON, which is YAML too."""
    plain = isinstance(value, str) and value.replace("_", "").isalnum() and not value.isdigit()
    if plain:
        return str(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return f"[{','.join(value)}]"
    return json.dumps(value)
