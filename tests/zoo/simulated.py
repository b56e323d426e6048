"""What a sensor or the scheduler would have said: planted into real runs."""

from collections.abc import Sequence

from llmprof.schema.run import Contention, DeviceTelemetry, Round, RunRecord
from tests.zoo.truth import Truth

THROTTLED = Truth(
    "no verdict: throttled", refusal="the clock was lower", caveats=("contended", "throttled")
)
FOREIGN = Truth("no verdict: foreign process", refusal="another process", caveats=("contended",))
_CLOCK_HZ = 3e9
_CLOCK_LEFT = 0.7


def throttled(record: RunRecord) -> RunRecord:
    """The clock falls by 30 % in the middle of the run, and the sensor names heat."""
    hot = DeviceTelemetry(event_reasons=("hw_thermal_slowdown",))
    return record.model_copy(
        update={
            "rounds": _second_half(record.rounds, hot, clock=_CLOCK_LEFT),
            "grouped": _second_half(record.grouped, hot, clock=_CLOCK_LEFT),
        }
    )


def with_foreign_process(record: RunRecord) -> RunRecord:
    """Another process uses the device from the middle of the run on."""
    shared = DeviceTelemetry(foreign_processes=1)
    return record.model_copy(
        update={
            "rounds": _second_half(record.rounds, shared),
            "grouped": _second_half(record.grouped, shared),
        }
    )


def _second_half(
    rounds: Sequence[Round], telemetry: DeviceTelemetry, *, clock: float = 1.0
) -> tuple[Round, ...]:
    half = len(rounds) // 2
    peace = (_said(one, None, 1.0) for one in rounds[:half])
    return (*peace, *(_said(one, telemetry, clock) for one in rounds[half:]))


def _said(one: Round, telemetry: DeviceTelemetry | None, clock: float) -> Round:
    """What a scheduler without anything to tell says, and a clock of so much of the usual one."""
    contention = Contention(
        run_queue_fraction=0.0,
        cpu_per_wall=None,
        steal_fraction=0.0,
        pressure_fraction=None,
        canary_hz=_CLOCK_HZ * clock,
    )
    return one.model_copy(update={"telemetry": telemetry, "contention": contention})
