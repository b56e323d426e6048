"""Where the numbers come from: machine, software, kernels, settings and the tool's own cost."""

from llmprof import units
from llmprof.renderers.datasheet_text import datasheet_sentence
from llmprof.renderers.estimates import point_and_interval
from llmprof.renderers.what_ran import Fact, own_cost_fact
from llmprof.renderers.wording import one_line
from llmprof.schema.environment import CacheLevel, GpuInfo
from llmprof.schema.report import Report
from llmprof.schema.settings import RunConfig


def environment_facts(report: Report) -> tuple[Fact, ...]:
    """The machine and the software, as recorded before the first round."""
    environment = report.run.environment
    cpu = environment.cpu
    found = [
        Fact("device", f"{environment.device}: {environment.device_name}"),
        Fact("processor", f"{cpu.model}, {cpu.usable_cores} of {cpu.logical_cores} cores usable"),
        Fact("caches", ", ".join(map(_cache, cpu.caches)) or "not known"),
        Fact("instruction sets", ", ".join(cpu.isa) or "not known"),
        Fact("memory", _memory(report)),
        Fact("virtual machine", _yes_or_no(environment.virtualized)),
    ]
    if environment.gpu:
        found += _gpu_facts(environment.gpu)
    found.append(Fact("datasheet", _datasheet(report)))
    if report.energy_per_token_j:
        energy = point_and_interval(report.energy_per_token_j, lambda one: units.si(one, "J"))
        window = report.run.energy
        sampled = window is not None and window.power_samples is not None
        how = ", estimated from readings of its power" if sampled else ""
        found.append(Fact("energy", f"{energy} per token, whole device{how}"))
    found += [
        Fact("system", f"{environment.os}, Python {environment.python}"),
        Fact("software", ", ".join(f"{k} {v}" for k, v in environment.versions.items())),
        Fact(
            "variables", ", ".join(f"{k}={v}" for k, v in environment.variables.items()) or "none"
        ),
        Fact("fingerprint", environment.fingerprint),
        Fact("own cost", own_cost_fact(report)),
    ]
    return tuple(Fact(fact.label, one_line(fact.value)) for fact in found)


def _cache(cache: CacheLevel) -> str:
    return f"L{cache.level} {units.byte_count(cache.size_bytes)} for {cache.shared_by}"


def _memory(report: Report) -> str:
    environment = report.run.environment
    total = units.byte_count(environment.memory_bytes)
    return f"{total}, {units.byte_count(environment.memory_available_bytes)} available"


def _datasheet(report: Report) -> str:
    if report.datasheet is None:
        return f"none, so no MFU and no MBU: {report.no_datasheet or 'not looked up'}"
    return datasheet_sentence(report.datasheet)


def _yes_or_no(value: bool | None) -> str:
    return "not known" if value is None else "yes" if value else "no"


def _gpu_facts(gpu: GpuInfo) -> list[Fact]:
    clock = "not known" if gpu.max_sm_clock_hz is None else units.si(gpu.max_sm_clock_hz, "Hz")
    power = "not known" if gpu.power_limit_w is None else units.si(gpu.power_limit_w, "W")
    return [
        Fact(
            "GPU",
            f"{gpu.name}, {units.byte_count(gpu.memory_bytes)}, compute capability "
            f"{gpu.compute_capability}, {gpu.multiprocessors} multiprocessors",
        ),
        Fact(
            "GPU settings",
            f"driver {gpu.driver_version or 'not known'}, power limit {power}, "
            f"SM clock at most {clock}, MIG {_yes_or_no(gpu.mig)}",
        ),
    ]


def kernel_facts(report: Report) -> tuple[Fact, ...]:
    """The kernels that ran, by role."""
    engine = report.run.engine
    named = dict(engine.kernels)
    if engine.attention_backend is not None:
        named["attention.backend"] = engine.attention_backend
    return tuple(Fact(one_line(role), one_line(name)) for role, name in named.items())


def settings_facts(report: Report) -> tuple[Fact, ...]:
    """Every setting that the run used, with its dotted key."""
    return tuple(Fact(key, value) for key, value in dotted_settings(report.run.settings))


def dotted_settings(settings: RunConfig) -> tuple[tuple[str, str], ...]:
    """Dotted key and value of everything that a run uses, as text on one line."""
    tree = settings.model_dump(mode="json", exclude={"gate", "sweep"})
    return tuple((key, one_line(value)) for key, value in _dotted(tree, ""))


def _dotted(value: object, prefix: str) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [
            pair
            for key, inner in value.items()
            for pair in _dotted(inner, f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(value, list):
        return [(prefix, ", ".join(map(str, value)))]
    return [(prefix, "not set" if value is None else str(value))]
