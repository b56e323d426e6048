"""One line per saved run, from the few keys that name it, without checking the whole document."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from llmprof.schema.cost import Phase
from llmprof.schema.listing import RunSummary
from llmprof.schema.run import Round, StepSample
from llmprof.store.runs import run_files

Usable = Callable[[Sequence[Round]], Sequence[Round]]
"""Of the rounds of a run those that a report computes with."""
_ROUNDS: Final = TypeAdapter(tuple[Round, ...])


def list_runs(usable: Usable) -> tuple[RunSummary, ...]:
    """Summarise every saved run, oldest first; one that cannot be read is listed as such."""
    return tuple(_summary(file, usable) for file in run_files())


def _summary(file: Path, usable: Usable) -> RunSummary:
    try:
        return _from_tree(file, from_json(file.read_bytes()), usable)
    except OSError as error:
        return _unreadable(file, str(error.strerror))
    except (ValueError, ValidationError, KeyError, TypeError, AttributeError):
        return _unreadable(file, "no run, or damaged")


def _unreadable(file: Path, reason: str) -> RunSummary:
    return RunSummary(
        id=_text(file.stem), file=_text(str(file)), status="unreadable", reason=reason
    )


def _text(name: str) -> str:
    """A file's name as text: its bytes may be none."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _from_tree(file: Path, tree: dict[str, Any], usable: Usable) -> RunSummary:
    workload = tree["settings"]["workload"]
    model = tree["model"]
    fixed = workload.get("kind", "fixed") == "fixed"  # a trace has requests of many lengths
    return RunSummary(
        id=tree["id"],
        file=_text(str(file)),
        status=tree["status"],
        created=tree["created"],
        model=tree["settings"]["model"] if model is None else model["name"],
        device=tree["environment"]["device"],
        dtype=tree["engine"]["compute_dtype"],
        batch=workload["batch"] if fixed else None,
        prompt_tokens=workload["prompt_tokens"] if fixed else None,
        output_tokens=workload["output_tokens"] if fixed else None,
        decode_step_s=_decode_step_s(usable(_ROUNDS.validate_json(to_json(tree["rounds"])))),
        reason=tree.get("status_reason"),
    )


def _decode_step_s(rounds: Sequence[Round]) -> float | None:
    of_rounds = [
        median(steps)
        for steps in ([_duration_s(step) for step in _decode(one)] for one in rounds)
        if steps
    ]
    return median(of_rounds) if of_rounds else None


def _decode(one_round: Round) -> list[StepSample]:
    return [step for step in one_round.steps if step.shape.phase is Phase.DECODE]


def _duration_s(step: StepSample) -> float:
    return step.duration_s if step.device_s is None else step.device_s
