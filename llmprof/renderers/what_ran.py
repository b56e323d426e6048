"""What ran on what: the facts that stand above every number of a run."""

from typing import NamedTuple

from llmprof import units
from llmprof.renderers.estimates import shared_confidence
from llmprof.renderers.wording import model_name, one_line
from llmprof.schema.report import Report
from llmprof.schema.settings import ContextKind, Quantization, WorkloadKind


class Fact(NamedTuple):
    label: str
    value: str


def facts(report: Report) -> tuple[Fact, ...]:
    """Every fact, in the order in which a reader asks for them."""
    return (
        Fact("model", model_fact(report)),
        Fact("weights", weights_fact(report)),
        Fact("KV cache", kv_fact(report)),
        Fact("workload", workload_fact(report)),
        Fact("execution", execution_fact(report)),
        Fact("device", device_fact(report)),
        Fact("measured", measured_fact(report)),
    )


def model_fact(report: Report) -> str:
    name = model_name(report)
    if report.run.weights is None:
        return name
    return f"{name}, {units.count(report.run.weights.parameters)} parameters"


def weights_fact(report: Report) -> str:
    """What is held in memory, and what the file stores where that is something else."""
    engine, manifest = report.run.engine, report.run.weights
    held = units.byte_count(engine.weight_bytes)
    if manifest is None or engine.weight_bytes == 0:
        return held
    stored: dict[str, int] = {}
    for tensor in manifest.tensors:
        dtype = one_line(tensor.stored_dtype)
        stored[dtype] = stored.get(dtype, 0) + tensor.stored_bytes
    dtypes = " + ".join(sorted(stored, key=lambda dtype: -stored[dtype])[:3])
    if manifest.origin == "engine" or manifest.stored_bytes == engine.weight_bytes:
        return f"{dtypes} {held}"
    return f"{held} held (stored: {dtypes} {units.byte_count(manifest.stored_bytes)})"


def kv_fact(report: Report) -> str:
    engine, layout = report.run.engine, report.run.settings.kv_cache.layout.value
    if engine.kv_bytes_reserved == 0:
        return f"{engine.kv_dtype}, {layout}"
    used, reserved = map(units.byte_count, (engine.kv_bytes_used, engine.kv_bytes_reserved))
    return f"{engine.kv_dtype}, {layout}, {used} used of {reserved}"


def workload_fact(report: Report) -> str:
    work = report.run.settings.workload
    if work.kind is WorkloadKind.TRACE:
        return f"trace of {work.requests} requests"
    prompt = "cached (synthetic)" if work.context is ContextKind.SYNTHETIC else "prompt"
    return f"batch {work.batch}, {work.prompt_tokens:,} {prompt} + {work.output_tokens:,} output tokens"


def execution_fact(report: Report) -> str:
    settings, engine = report.run.settings, report.run.engine
    words = [
        f"{engine.compute_dtype} arithmetic{' (fp8 for many rows)' if engine.fp8_arithmetic else ''}",
        f"{settings.attention.kind.value} attention",
        settings.execution.mode.value,
    ]
    if settings.weights.quantization is not Quantization.NONE:
        words.insert(1, f"{settings.weights.quantization.value} weights")
    return ", ".join(words)


def device_fact(report: Report) -> str:
    environment, engine = report.run.environment, report.run.engine
    words = [one_line(environment.device_name)]
    if environment.gpu is None:
        cores = environment.cpu.usable_cores
        on_cores = "" if cores == engine.threads else f" on {units.number_of(cores, 'core')}"
        words.append(f"{units.number_of(engine.threads, 'thread')}{on_cores}")
    words += [
        f"{name} {version}" for name, version in environment.versions.items() if name == "torch"
    ]
    if environment.virtualized:
        words.append("VM")
    return ", ".join(words)


def measured_fact(report: Report) -> str:
    run = report.run
    return (
        f"{rounds_fact(report)}, after {run.warmup.rounds} of warm-up, "
        f"{run.created:%Y-%m-%d %H:%M} UTC"
    )


def own_cost_share(report: Report) -> str:
    """The first figure of `own_cost_fact`: "0.06 % of a decode step"."""
    own = report.own_cost
    if own is None:
        return "not known"
    return f"{units.percent(own.clean_fraction)} of a {own.phase.value} step"


def own_cost_fact(report: Report) -> str:
    """What the tool itself costs the steps that it times."""
    own = report.own_cost
    if own is None:
        return "not known"
    words = f"{own_cost_share(report)} ({units.seconds(own.clean_s)})"
    if own.grouped_s is None:
        return words
    return f"{words}; grouped pass {units.seconds(own.grouped_s)} more, subtracted"


def rounds_fact(report: Report) -> str:
    """How many rounds, and how far their intervals are to be trusted."""
    stated = [phase.step_s for phase in report.phases]
    stated += [verdict.roof_fraction for verdict in report.verdicts if verdict.roof_fraction]
    return f"{units.number_of(len(report.run.rounds), 'round')}, {shared_confidence(stated)}"
