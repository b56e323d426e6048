"""What the instruments cost a decode step, by rounds with and without them in turn.

    python tests/benchmarks/own_cost.py [--model smollm2-135m-instruct] [--mode compiled] [--weights file]

A pair is the same round of decode steps twice, once told to nobody and once to the tracer of the
clean pass with the contention meter around it; which goes first alternates. Pairs are added until
the interval of the median ratio is at most half a per cent to either side, or --max-pairs. Beside
it stands the other answer: calls x what each takes. Wants a quiet machine; the target is 1 %.
"""

import argparse
import time
from collections.abc import Sequence

from llmprof.analysis.statistics import median_estimate
from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.probe import NullProbe
from llmprof.instruments.canary import Canary
from llmprof.instruments.clock import HostClock
from llmprof.instruments.contention import ContentionMeter
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.own_cost import measure_own_cost
from llmprof.instruments.snapshot import resolve_threads
from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.measurement import Estimate
from llmprof.schema.settings import RunConfig

HALF_WIDTH = 0.005
MIN_PAIRS = 6
TARGET = 0.01


def main() -> None:
    arguments = _arguments()
    threads = resolve_threads(None)
    config = _config(arguments)
    workload = _workload(config, threads)
    step_s = _warm_round_s(workload) / arguments.steps
    print(f"{arguments.model}, {arguments.mode}: {1e3 * step_s:.2f} ms per decode step")
    _print_calculated(workload, step_s)
    ratios: list[float] = []
    while len(ratios) < arguments.max_pairs:
        ratios.append(_paired_ratio(workload, threads, with_first=len(ratios) % 2 == 1))
        if len(ratios) >= MIN_PAIRS and _half_width(median_estimate(ratios)) <= HALF_WIDTH:
            break
    _print_measured(ratios)


def _paired_ratio(workload: EngineWorkload, threads: int, *, with_first: bool) -> float:
    """Time with the instruments over time without."""
    clock = HostClock()
    times_s = {}
    for instrumented in (with_first, not with_first):
        meter = ContentionMeter(threads, canary=Canary())
        if instrumented:
            meter.start()
        probe = StepTracer(clock, None, 0) if instrumented else NullProbe()
        start_s = time.perf_counter()
        workload.run_round(probe)
        times_s[instrumented] = time.perf_counter() - start_s
        if instrumented:
            meter.stop()
    return times_s[True] / times_s[False]


def _warm_round_s(workload: EngineWorkload) -> float:
    """The shortest of three."""
    times_s = []
    for _ in range(3):
        start_s = time.perf_counter()
        workload.run_round(NullProbe())
        times_s.append(time.perf_counter() - start_s)
    return min(times_s)


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
        print("inconclusive: the machine is too loud for half a per cent; add --max-pairs")
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
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--max-pairs", type=int, default=400)
    return parser.parse_args()


if __name__ == "__main__":
    main()
