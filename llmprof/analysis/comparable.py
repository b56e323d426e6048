"""Whether two runs may be compared: the same work on the same machine and software."""

from collections.abc import Iterator

from llmprof.schema.environment import Environment
from llmprof.schema.model import ModelConfig
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig

_LIBRARIES = ("torch", "cuda", "flashinfer-python", "llmprof")


def why_not_comparable(baseline: RunRecord, candidate: RunRecord) -> tuple[str, ...]:
    """What must agree and does not, each with both values; empty where the comparison is fair.

    Weights, KV cache, attention, batching and execution are switches of the engine: to compare them
    is the point.
    """
    return (
        *_models(baseline.model, candidate.model),
        *_workloads(baseline.settings, candidate.settings),
        *_environments(baseline.environment, candidate.environment),
        *_attention(baseline, candidate),
    )


def _models(baseline: ModelConfig | None, candidate: ModelConfig | None) -> Iterator[str]:
    if baseline is None or candidate is None:
        if baseline is not candidate:
            yield "one of them measured no language model"
        return
    named = {"name": ""}
    if baseline.model_copy(update=named) != candidate.model_copy(update=named):
        yield f"the models differ: {baseline.name} and {candidate.name}"


def _workloads(baseline: RunConfig, candidate: RunConfig) -> Iterator[str]:
    one, other = baseline.workload.model_dump(), candidate.workload.model_dump()
    for key, value in one.items():
        if value != other[key]:
            yield f"workload.{key} is {value} and {other[key]}"
    if baseline.measure.steps_per_round != candidate.measure.steps_per_round:
        steps = (baseline.measure.steps_per_round, candidate.measure.steps_per_round)
        yield f"measure.steps_per_round is {steps[0]} and {steps[1]}"


def _attention(baseline: RunRecord, candidate: RunRecord) -> Iterator[str]:
    """The same settings must have led to the same kernels; files of older versions do not tell."""
    if baseline.settings.attention != candidate.settings.attention:
        return
    one, other = baseline.engine.attention_backend, candidate.engine.attention_backend
    asked = f"attention.backend={baseline.settings.attention.backend.value}"
    if one is not None and other is not None and one != other:
        yield f"{asked} took {one} and {other}"


def _environments(baseline: Environment, candidate: Environment) -> Iterator[str]:
    """Threads are a setting; all else that the fingerprint covers must agree."""
    one, other = _machine(baseline), _machine(candidate)
    differences = [
        f"{name} is {value} and {other.get(name)}"
        for name, value in one.items()
        if value != other.get(name)
    ]
    yield from differences
    same_threads = baseline.threads == candidate.threads
    if not differences and same_threads and baseline.fingerprint != candidate.fingerprint:
        yield f"the fingerprints differ: {baseline.fingerprint} and {candidate.fingerprint}"


def _machine(environment: Environment) -> dict[str, object]:
    cpu, gpu = environment.cpu, environment.gpu
    found: dict[str, object] = {
        "the CPU": cpu.model,
        "usable cores": cpu.usable_cores,
    }
    if gpu is None:
        found["what lets threads sleep between ops"] = environment.sleeps_between_ops or "nothing"
    for name in _LIBRARIES:
        version = environment.versions.get(name)
        if version is not None and name == "llmprof":
            version = ".".join(version.split(".")[:2])
        found[name] = version
    found["the device"] = "the CPU" if gpu is None else gpu.name
    if gpu is not None:
        found["GPU memory"] = gpu.memory_bytes
        found["the power limit"] = gpu.power_limit_w
        found["MIG"] = gpu.mig
    return found
