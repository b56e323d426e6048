"""What the machine did in each clean round: clocks, power, activity, and who else wanted its cores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, NamedTuple

from llmprof import units
from llmprof.renderers.estimates import Formatter
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import one_line
from llmprof.schema.run import DeviceTelemetry, Round, RunRecord

Panel = Literal["clock", "power", "activity", "share", ""]
"""Of the figure; "" stands in the table only."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A quantity over the rounds; where no round has it, why."""

    name: str
    panel: Panel
    text: Formatter
    times_s: tuple[float, ...]
    values: tuple[float, ...]
    why_absent: str = ""
    meaning: str = ""


class _Sensor(NamedTuple):
    name: str
    field: str
    """Of the record that it is read from; also the key of the reason why it is missing."""
    panel: Panel
    text: Formatter
    meaning: str = ""


def _watts(value: float) -> str:
    return units.si(value, "W")


def _hertz(value: float) -> str:
    return units.si(value, "Hz")


def _celsius(value: float) -> str:
    return f"{units.significant(value)} °C"


_NVML: Final = (
    _Sensor("SM clock", "sm_clock_hz", "clock", _hertz),
    _Sensor("memory clock", "memory_clock_hz", "clock", _hertz),
    _Sensor("power", "power_w", "power", _watts, "of the whole device"),
    _Sensor("temperature", "temperature_celsius", "", _celsius),
    _Sensor("device memory", "memory_used_bytes", "", units.byte_count, "held by all processes"),
    _Sensor("SM activity", "sm_activity", "activity", units.percent, "multiprocessors with a warp"),
    _Sensor("tensor activity", "tensor_activity", "activity", units.percent, "GPM counter"),
    _Sensor(
        "DRAM activity",
        "dram_activity",
        "activity",
        units.percent,
        "of the theoretical bandwidth, GPM counter",
    ),
)
_SYSTEM: Final = (
    _Sensor(
        "clock canary",
        "canary_hz",
        "clock",
        _hertz,
        "dependent additions per CPU-second: falls when the core's clock does",
    ),
    _Sensor(
        "CPU time per wall time",
        "cpu_per_wall",
        "share",
        units.percent,
        "of all threads: what is left of 100 % they slept or waited",
    ),
    _Sensor(
        "waited for a core", "run_queue_fraction", "share", units.percent, "own run-queue delay"
    ),
    _Sensor("taken by the hypervisor", "steal_fraction", "share", units.percent, "steal time"),
)


def conditions(run: RunRecord) -> tuple[Condition, ...]:
    """In the order of reading: of a GPU its sensors first, of every machine the system's counters."""
    rounds = [one for one in run.rounds if one.steps]
    sensors = tuple(_of_device(rounds, one) for one in _NVML) if run.environment.gpu else ()
    return (*sensors, *(_of_system(rounds, one, run) for one in _SYSTEM))


def _of_device(rounds: Sequence[Round], sensor: _Sensor) -> Condition:
    def read(one: Round) -> float | None:
        if one.telemetry is None:
            return None
        value: float | None = getattr(one.telemetry, sensor.field)
        return value

    reasons = {one.telemetry.missing.get(sensor.field, "") for one in rounds if one.telemetry}
    said = sorted(one_line(reason) for reason in reasons if reason)
    return _condition(rounds, sensor, read, said[0] if said else "no sensor was read")


def _of_system(rounds: Sequence[Round], sensor: _Sensor, run: RunRecord) -> Condition:
    def read(one: Round) -> float | None:
        value: float | None = getattr(one.contention, sensor.field)
        return value

    on_gpu = sensor.field == "canary_hz" and run.environment.gpu is not None
    why = "read on CPUs only" if on_gpu else "the system does not tell"
    return _condition(rounds, sensor, read, why)


def _condition(
    rounds: Sequence[Round], sensor: _Sensor, read: Callable[[Round], float | None], why: str
) -> Condition:
    seen = [(one.steps[0].start_s, value) for one in rounds if (value := read(one)) is not None]
    return Condition(
        name=sensor.name,
        panel=sensor.panel,
        text=sensor.text,
        times_s=tuple(time for time, _ in seen),
        values=tuple(value for _, value in seen),
        why_absent="" if seen else why if rounds else "no round was completed",
        meaning=sensor.meaning,
    )


def conditions_table(run: RunRecord) -> Table:
    """A row per quantity; of one that is absent the reason stands in place of its meaning."""
    rows = [_row(one) for one in conditions(run)]
    if run.environment.gpu is None:
        rows.append(("clock, power, temperature", *("-",) * 4, "NVML sees GPUs only"))
    else:
        rows += _held_back_rows([one.telemetry for one in run.rounds if one.telemetry])
    return Table(
        caption=f"Clocks, power and company in {len(run.rounds)} clean rounds, rejected ones included",
        columns=("quantity", "rounds", "lowest", "median", "highest", "what it is, or why not"),
        rows=tuple(rows),
        prose=frozenset({5}),
    )


def _row(one: Condition) -> tuple[str, ...]:
    if not one.values:
        return (one.name, *("-",) * 4, f"none: {one.why_absent}")
    figures = map(one.text, (min(one.values), median(one.values), max(one.values)))
    return (one.name, str(len(one.values)), *figures, one.meaning)


def _held_back_rows(sensed: Sequence[DeviceTelemetry]) -> list[tuple[str, ...]]:
    """By cause, the share of a round for which the device held its clocks back."""
    shares: dict[str, list[float]] = {}
    for one in sensed:
        for cause, held_s in one.held_back_s.items():
            if one.interval_s:
                shares.setdefault(cause, []).append(held_s / one.interval_s)
    return [
        (
            f"held back: {one_line(cause)}",
            str(len(found)),
            *map(units.percent, (min(found), median(found), max(found))),
            "of the round, by the device's own counter",
        )
        for cause, found in sorted(shares.items())
    ]
