"""The ledger's own test on this machine: known costs must appear in their part and nowhere else.

    python -m tests.benchmarks.ledger_injection [--model smollm2-135m-instruct] [--cycles 5] [--extra-ms 100]

Plants extra bytes, FLOPs, launches and host time into every decode step of the model, in rounds that
take turns with rounds without. Prints by how much each part of the ledger moved, in units of what the
extra took by its own clock: 100 % in its own part, 0 % in all others. Wants a quiet machine.
What is planted slows the rest of the step by a few milliseconds whatever its amount (it takes caches and
threads from it), so the amount is large. The host spins through its sleep: a real one parks the thread pool, which costs the next step more.
Exit code 1 where a part is off by more than 10 %, or another one moved by more than 5 %.
"""

import argparse
import sys

import torch

from llmprof.analysis.report import build_report
from llmprof.architectures.source import resolve_model
from llmprof.ceilings.measure import cached_ceilings
from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.read_kernels import read_kernels
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.snapshot import resolve_threads, snapshot
from llmprof.profiler import measure
from llmprof.schema.ceilings import Ceilings, MemoryOp
from llmprof.schema.cost import OpCost, OpGroup, Phase, StepCost
from llmprof.schema.ledger import Part
from llmprof.schema.settings import RunConfig
from tests.planting.extras import Extra, TakingTurns
from tests.planting.movement import Planted, movements
from tests.zoo.pieces import multiply, read, tiny_ops

_FAR_BYTES = 4 << 30


def main() -> None:
    arguments = _arguments()
    threads = resolve_threads(None)
    config = _config(arguments, rounds=3)
    workload = _open(config, threads)
    cost = _decode_cost(workload, config, threads)
    ceilings = cached_ceilings(snapshot("cpu", threads), "cpu")
    extras = _extras(ceilings, arguments.extra_ms / 1e3)
    turns = TakingTurns(workload, cost, extras)
    config = _config(arguments, rounds=arguments.cycles * turns.arms)
    record = measure(turns, config, device="cpu", threads=threads)
    for caveat in build_report(record).caveats:
        if caveat.code in ("contended", "throttled"):
            print(f"  ! {caveat.code}: {caveat.message}")
    planted = movements(record, turns)
    for one in planted:
        _print(one)
    held = sum(one.holds for one in planted)
    print(f"{held} of {len(planted)} costs were found where they were planted")
    sys.exit(held < len(planted))


def _config(arguments: argparse.Namespace, *, rounds: int) -> RunConfig:
    return RunConfig.model_validate(
        {
            "model": arguments.model,
            "weights": {"dtype": "bf16", "source": arguments.weights},
            "workload": {"prompt_tokens": arguments.prompt_tokens, "output_tokens": 16},
            "measure": {"rounds": rounds},
        }
    )


def _open(config: RunConfig, threads: int) -> EngineWorkload:
    source = resolve_model(config.model, weights=config.weights.source)
    engine = Engine.load(
        source,
        config,
        device="cpu",
        threads=threads,
        host_available_bytes=host_memory().available_bytes,
    )
    return EngineWorkload(engine, config)


def _decode_cost(workload: EngineWorkload, config: RunConfig, threads: int) -> StepCost:
    """Of the median decode step, as a report counts it."""
    report = build_report(measure(workload, config, device="cpu", threads=threads))
    return next(cost for cost in report.costs if cost.shape.phase is Phase.DECODE)


def _extras(ceilings: Ceilings, seconds: float) -> tuple[Extra, ...]:
    """Each for about so long, by the cached ceilings; how long they take is measured."""
    reads = [one for one in ceilings.bandwidth if one.op is MemoryOp.READ]
    read_bytes_per_s = max(reads, key=lambda one: one.buffer_bytes).bytes_per_s
    best = max((c for c in ceilings.compute if c.dtype == "bf16"), key=lambda one: one.flops_per_s)
    products = max(1, round(seconds * best.flops_per_s / (2.0 * best.m * best.n * best.k)))
    launches = round(seconds / ceilings.fixed_cost.alpha_s)
    stream = Stream(random_pool(_FAR_BYTES, "cpu", torch.float32))
    size = min(int(seconds * read_bytes_per_s), stream.pool.nbytes) >> 12 << 12
    bytes_read = read(read_kernels("cpu")[0], stream, size)
    multiplied = multiply("bf16", "cpu", (best.m, best.n, best.k), products)
    started = tiny_ops(launches, "cpu", kind=_kind_of_alpha(ceilings))
    return (
        Extra("bytes", Part.MEMORY_WEIGHTS, bytes_read.run, _in_other(bytes_read.cost)),
        Extra("FLOPs", Part.COMPUTE, multiplied.run, _in_other(multiplied.cost), ops=products),
        Extra("launches", Part.FIXED_COST, started.run, _in_other(started.cost), ops=launches),
        Extra("host time", Part.HOST, sleep_s=seconds),
    )


def _kind_of_alpha(ceilings: Ceilings) -> str:
    """The cheapest kind of op, which alpha was taken from: what dearer ones add is rightly loss."""
    return ceilings.fixed_cost.method.partition(",")[0]


def _in_other(cost: OpCost | None) -> OpCost:
    """The extra work has an op group for itself."""
    assert cost is not None
    return cost.model_copy(update={"group": OpGroup.OTHER, "name": f"extra {cost.name}"})


def _print(planted: Planted) -> None:
    print(
        f"{planted.extra.name}: {planted.seconds * 1e3:.2f} ms planted; the step grew by "
        f"{planted.step:.0%} of that"
    )
    for one in planted.movements:
        mark = "" if planted.allows(one) else "  <- off"
        wanted = "100 %" if one.part is planted.extra.part else "0 %"
        print(
            f"  {one.part.value:<16} {one.median:+8.1%}  (wanted {wanted}, spread {one.spread:.1%})"
            f"{mark}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--weights", default="file", choices=("file", "random"))
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--extra-ms", type=float, default=100.0)
    parser.add_argument("--cycles", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
