"""What the instruments cost a decode step, by blocks of steps with and without them in turn.

    python tests/benchmarks/own_cost.py [--model smollm2-135m-instruct] [--mode compiled] [--weights file]

A pair is the same block of decode steps twice in one process, once told to nobody and once to the
tracer of the clean pass with the contention meter and its canary around it; which goes first
alternates. A step is timed by a clock around both observers alike, so the ratio holds what the
tracer takes inside a step and what the meter leaves behind it (caches, clock). Pairs are added until
the interval of the median ratio is at most half a per cent to either side, or --seconds are over.
Beside it stands the other answer: calls x what each takes, which has the empty hooks of the op
groups in it as well (no step runs without them). Wants a quiet machine; the target is 1 %.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from statistics import fmean

from llmprof.analysis.statistics import median_estimate
from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.probe import NullProbe, Probe
from llmprof.instruments.canary import Canary
from llmprof.instruments.clock import HostClock
from llmprof.instruments.contention import ContentionMeter
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.own_cost import measure_own_cost
from llmprof.instruments.snapshot import resolve_threads
from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.cost import OpGroup, StepShape
from llmprof.schema.measurement import Estimate
from llmprof.schema.settings import RunConfig

HALF_WIDTH = 0.005
MIN_PAIRS = 12
PROGRESS_S = 5.0
TARGET = 0.01


class Timed:
    """An observer with a clock around its hooks: what it takes is in the time of its steps."""

    wants_groups = False

    def __init__(self, inner: Probe) -> None:
        self._inner = inner
        self._start_s = 0.0
        self.steps_s: list[float] = []

    def step_begin(self, shape: StepShape) -> None:
        self._start_s = time.perf_counter()
        self._inner.step_begin(shape)

    def step_end(self) -> None:
        self._inner.step_end()
        self.steps_s.append(time.perf_counter() - self._start_s)

    def group_begin(self, group: OpGroup) -> None:
        pass

    def group_end(self) -> None:
        pass


def main() -> None:
    arguments = _arguments()
    threads = resolve_threads(None)
    config = _config(arguments)
    workload = _workload(config, threads)
    step_s = min(fmean(_block(workload, NullProbe())) for _ in range(3))
    print(f"{arguments.model}, {arguments.mode}: {1e3 * step_s:.2f} ms per decode step")
    _print_calculated(workload, step_s)
    meter = ContentionMeter(threads, canary=Canary())
    _print_measured(_ratios(workload, meter, arguments.seconds))


def _ratios(workload: EngineWorkload, meter: ContentionMeter, seconds: float) -> list[float]:
    """Of pairs, until they tell half a per cent or time is over."""
    ratios: list[float] = []
    start_s = told_s = time.perf_counter()
    while (now_s := time.perf_counter()) - start_s < seconds or len(ratios) < MIN_PAIRS:
        ratios.append(_paired_ratio(workload, meter, with_first=len(ratios) % 2 == 1))
        if len(ratios) < MIN_PAIRS:
            continue
        found = median_estimate(ratios)
        if _half_width(found) <= HALF_WIDTH:
            break
        if now_s - told_s > PROGRESS_S:
            told_s = now_s
            print(
                f"{len(ratios)} pairs: {100 * (found.point - 1):+.2f} % "
                f"+- {100 * _half_width(found):.2f} %",
                file=sys.stderr,
            )
    return ratios


def _paired_ratio(workload: EngineWorkload, meter: ContentionMeter, *, with_first: bool) -> float:
    """Time of the steps with the instruments over time without."""
    times_s = {}
    for instrumented in (with_first, not with_first):
        if instrumented:
            meter.start()
            times_s[True] = sum(_block(workload, StepTracer(HostClock(), None, 0)))
            meter.stop()
        else:
            times_s[False] = sum(_block(workload, NullProbe()))
    return times_s[True] / times_s[False]


def _block(workload: EngineWorkload, probe: Probe) -> list[float]:
    timed = Timed(probe)
    workload.run_round(timed)
    return timed.steps_s


def _print_calculated(workload: EngineWorkload, step_s: float) -> None:
    clock = HostClock()
    tracer = GroupTracer(clock, None, 0)
    workload.run_round(tracer)
    own = measure_own_cost(clock, None, tracer.samples())
    clean_s = own.seconds_per_step + own.probe_calls_per_step * own.seconds_per_empty_call
    print(
        f"calculated: {1e6 * own.seconds_per_step:.2f} us per step + "
        f"{own.probe_calls_per_step:.0f} pairs of hooks x {1e9 * own.seconds_per_empty_call:.0f} ns "
        f"= {1e6 * clean_s:.1f} us, {100 * clean_s / step_s:.3f} % of a step"
    )


def _print_measured(ratios: Sequence[float]) -> None:
    found = median_estimate(ratios)
    low, point, high = (100 * (value - 1) for value in (found.low, found.point, found.high))
    print(
        f"measured: {point:+.2f} % [{low:+.2f}, {high:+.2f}] of a step, {len(ratios)} pairs, "
        f"half-width {100 * _half_width(found):.2f} %, confidence {found.confidence:.3f}"
    )
    if _half_width(found) > HALF_WIDTH:
        print("inconclusive: the machine is too loud for half a per cent; add --seconds")
    elif found.low - 1 > TARGET:
        print(f"over the target of {100 * TARGET:.0f} %")
    elif found.high - 1 <= TARGET:
        print(f"within the target of {100 * TARGET:.0f} %")
    else:
        print(f"the target of {100 * TARGET:.0f} % lies within the interval")


def _half_width(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / 2


def _config(arguments: argparse.Namespace) -> RunConfig:
    return RunConfig.model_validate(
        {
            "model": arguments.model,
            "weights": {"dtype": "bf16", "source": arguments.weights},
            "execution": {"mode": arguments.mode},
            "workload": {
                "prompt_tokens": 128,
                "output_tokens": arguments.steps + 1,
                "context": "synthetic",
            },
        }
    )


def _workload(config: RunConfig, threads: int) -> EngineWorkload:
    source = resolve_model(config.model, weights=config.weights.source)
    engine = Engine.load(
        source,
        config,
        device="cpu",
        threads=threads,
        host_available_bytes=host_memory().available_bytes,
    )
    return EngineWorkload(engine, config)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--weights", choices=("file", "random"), default="file")
    parser.add_argument("--mode", choices=("eager", "compiled"), default="compiled")
    parser.add_argument("--steps", type=int, default=8, help="of a block")
    parser.add_argument("--seconds", type=float, default=300.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
