"""The run on a time axis, in the Trace Event Format that Perfetto and chrome://tracing open.

A process per pass. In each, a span per phase holds one per step, and in the tracing pass a step
holds its ops; kernels of a device, which run behind the host's steps, have a track of their own.
Clocks, power, memory, ceilings, batch and KV cache are counters. Times are in us from the start of
the run. Source: "Trace Event Format", Google, 2016.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.report import Report
from llmprof.schema.run import Round, RunRecord, StepSample
from llmprof.schema.trace import OpTimeline, Trace, TraceClock

Event = dict[str, Any]

_US_PER_S: Final = 1e6
_STEPS, _KERNELS = 1, 2
"""Tracks of a process."""
_MACHINE: Final = 1
_PASSES: Final = (("clean", 2), ("grouped", 3), ("tracing", 4))


def render_chrome_trace(report: Report) -> bytes:
    """Compact JSON; equal for equal reports."""
    run = report.run
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"run": run.id, "llmprof": run.tool.version, "created": f"{run.created}"},
        "traceEvents": [*_names(run), *sorted(_events(run), key=_order)],
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _rounds(run: RunRecord) -> dict[str, tuple[Round, ...]]:
    return {"clean": run.rounds, "grouped": run.grouped, "tracing": run.traced}


def _events(run: RunRecord) -> Iterator[Event]:
    for name, process in _PASSES:
        for one in _rounds(run)[name]:
            yield from _phase_spans(one.steps, process)
            yield from (_step_span(step, index, process) for index, step in enumerate(one.steps))
            yield from _step_counters(one.steps, process)
    every = [one for rounds in _rounds(run).values() for one in rounds]
    yield from _machine_counters(every)
    if run.trace is not None:
        for timeline in run.trace.timelines:
            step = run.traced[timeline.round].steps[timeline.step]
            yield from _op_spans(run.trace, timeline, step)


def _order(event: Event) -> tuple[int, float, float]:
    """By time; of spans that start together the longest first, since it holds the others."""
    return event["pid"], event["ts"], -event.get("dur", 0.0)


def _names(run: RunRecord) -> Iterator[Event]:
    yield _name("process_name", _MACHINE, 0, "machine")
    for name, process in _PASSES:
        if not _rounds(run)[name]:
            continue
        yield _name("process_name", process, 0, f"{name} pass")
        on_host = name == "tracing" and run.trace and run.trace.clock is TraceClock.HOST
        yield _name("thread_name", process, _STEPS, "steps and ops" if on_host else "steps")
        if name == "tracing" and not on_host:
            yield _name("thread_name", process, _KERNELS, "kernels")


def _name(kind: str, process: int, track: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "ts": 0, "args": {"name": name}}


def _phase_spans(steps: Sequence[StepSample], process: int) -> Iterator[Event]:
    """One over each row of steps of one phase."""
    for phase, members in groupby(steps, key=lambda step: step.shape.phase):
        held = list(members)
        end_s = held[-1].start_s + held[-1].duration_s
        yield _span(
            phase.value, "phase", process, held[0].start_s, end_s, args={"steps": len(held)}
        )


def _step_span(step: StepSample, index: int, process: int) -> Event:
    shape = step.shape
    args: dict[str, Any] = {
        "new_tokens": shape.new_tokens,
        "cached_tokens": shape.cached_tokens,
        "sequences": shape.num_sequences,
    }
    if step.device_s is not None:
        args["device_s"] = step.device_s
    if step.groups:
        args["groups_s"] = {one.group.value: one.duration_s for one in step.groups}
    end_s = step.start_s + step.duration_s
    return _span(f"step {index}", "step", process, step.start_s, end_s, args=args)


def _op_spans(trace: Trace, timeline: OpTimeline, step: StepSample) -> Iterator[Event]:
    process = dict(_PASSES)["tracing"]
    track = _STEPS if trace.clock is TraceClock.HOST else _KERNELS
    for index, start_s, duration_s in zip(
        timeline.op, timeline.start_s, timeline.duration_s, strict=True
    ):
        op = trace.ops[index]
        start_s += step.start_s
        yield _span(
            op.op,
            op.group.value,
            process,
            start_s,
            start_s + duration_s,
            args={"group": op.group.value},
            track=track,
        )


def _span(
    name: str,
    category: str,
    process: int,
    start_s: float,
    end_s: float,
    *,
    args: dict[str, Any],
    track: int = _STEPS,
) -> Event:
    start_us = _us(start_s)
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": track,
        "ts": start_us,
        "dur": round(_us(end_s) - start_us, 3),
        "args": args,
    }


def _step_counters(steps: Iterable[StepSample], process: int) -> Iterator[Event]:
    for step in steps:
        if step.kv is not None:
            values = {"used": step.kv.used_bytes, "wasted": step.kv.wasted_bytes}
            yield _counter("KV cache (bytes)", process, step.start_s, values)
        if step.batch is not None:
            values = {"running": step.batch.running, "waiting": step.batch.waiting}
            yield _counter("sequences", process, step.start_s, values)


def _machine_counters(rounds: Iterable[Round]) -> Iterator[Event]:
    """At the end of each round, when the sensors were read; ceilings when they were."""
    readings: dict[float, CeilingReading] = {}
    for one in rounds:
        readings |= {r.time_s: r for r in (one.before, one.after) if r is not None}
        if one.steps:
            yield from _sensors(one, one.steps[-1].start_s + one.steps[-1].duration_s)
    for time_s, reading in readings.items():
        rates = {"read": reading.read_bytes_per_s}
        yield _counter("read ceiling (bytes/s)", _MACHINE, time_s, rates)
        flops = {reading.matmul_dtype: reading.matmul_flops_per_s}
        yield _counter("matmul ceiling (FLOP/s)", _MACHINE, time_s, flops)


def _sensors(one: Round, time_s: float) -> Iterator[Event]:
    found = {
        "dependent additions per CPU-second (Hz)": one.contention.canary_hz,
        "CPU time over wall time": one.contention.cpu_per_wall,
        "run-queue delay (share)": one.contention.run_queue_fraction,
    }
    if one.telemetry is not None:
        found |= {
            "SM clock (Hz)": one.telemetry.sm_clock_hz,
            "memory clock (Hz)": one.telemetry.memory_clock_hz,
            "power (W)": one.telemetry.power_w,
            "temperature (celsius)": one.telemetry.temperature_celsius,
            "device memory used (bytes)": one.telemetry.memory_used_bytes,
        }
    for name, value in found.items():
        if value is not None:
            yield _counter(name, _MACHINE, time_s, {"value": value})


def _counter(name: str, process: int, time_s: float, values: dict[str, Any]) -> Event:
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": _us(time_s), "args": values}


def _us(time_s: float) -> float:
    return round(time_s * _US_PER_S, 3)
