"""Paged against contiguous caches, and continuous against static batching, on one fixed trace.

The first tables are played with the scheduler and block tables alone. With `--model` the batching
is also measured: the same trace served in turns by both policies, in one process.

    python tests/benchmarks/paged_waste.py
    python tests/benchmarks/paged_waste.py --model smollm2-135m-instruct --rounds 3
"""

import argparse
import statistics
import time

from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.experiments.trace_capacity import (
    compare_batching,
    compare_capacity,
    log_normal_trace,
)
from llmprof.instruments.host_memory import host_memory
from llmprof.schema.settings import RunConfig

LONGEST, BLOCK_TOKENS, BUDGET_SEQUENCES = 2048, 16, 4
KV_BYTES_PER_TOKEN = 23_040
"""SmolLM2-135M in bf16."""


def play(seed: int) -> None:
    trace = log_normal_trace(requests=64, mean=256, sigma=1.0, longest=LONGEST, seed=seed)
    budget = BUDGET_SEQUENCES * LONGEST
    print(f"64 requests, log-normal lengths (mean 256, sigma 1, at most {LONGEST}), seed {seed}")
    print(f"KV budget {budget} tokens ({budget * KV_BYTES_PER_TOKEN / 2**20:.0f} MiB in bf16)\n")
    print(f"{'reserved':34} {'at once':>8} {'peak':>5} {'wasted':>12} {'share':>7} {'steps':>6}")
    rows = compare_capacity(
        trace,
        budget_tokens=budget,
        longest=LONGEST,
        block_tokens=BLOCK_TOKENS,
        max_step_tokens=2048,
    )
    for row in rows:
        wasted_mib = row.mean_wasted_tokens * KV_BYTES_PER_TOKEN / 2**20
        print(
            f"{row.name:34} {row.mean_running:8.1f} {row.peak_running:5} {wasted_mib:8.1f} MiB "
            f"{100 * row.wasted_fraction:5.1f} % {row.num_steps:6}  {row.num_preemptions} preemptions"
        )
    oracle, paged = rows[-2:]
    print(
        f"\npaged runs {paged.mean_running / oracle.mean_running:.0%} of the oracle's sequences\n"
    )
    for places in (4, 8, 16):
        gain = compare_batching(trace, max_sequences=places, max_step_tokens=2048)
        print(
            f"batch {places:2}: {gain.static_steps} steps static, {gain.continuous_steps} continuous: "
            f"{gain.gain:.2f} x; bounds {gain.largest_gain_in_order:.2f} x in the order of arrival "
            f"(reached {gain.gain / gain.largest_gain_in_order:.0%}), {gain.largest_gain:.2f} x in any "
            f"({gain.gain / gain.largest_gain:.0%})"
        )


def measure(model: str, rounds: int, requests: int) -> None:
    """Both policies on one engine, in turns."""
    lengths = {"kind": "log_normal", "mean": 64, "sigma": 1.0, "high": 512}
    base = RunConfig.model_validate(
        {
            "model": model,
            "device": "cpu",
            "kv_cache": {"layout": "paged"},
            "batching": {"max_sequences": 8},
            "workload": {
                "kind": "trace",
                "requests": requests,
                "lengths": {"prompt": lengths, "output": lengths},
            },
        }
    )
    engine = Engine.load(
        resolve_model(model, weights=base.weights.source),
        base,
        device="cpu",
        threads=2,
        host_available_bytes=host_memory().available_bytes,
    )
    works = {}
    for policy in ("static", "continuous"):
        batching = base.batching.model_validate({"policy": policy, "max_sequences": 8})
        works[policy] = open_workload(engine, base.model_copy(update={"batching": batching}))
        works[policy].run_round(NullProbe())
    taken: dict[str, list[float]] = {policy: [] for policy in works}
    for _ in range(rounds):
        for policy, work in works.items():
            start_ns = time.perf_counter_ns()
            work.run_round(NullProbe())
            taken[policy].append((time.perf_counter_ns() - start_ns) / 1e9)
    ratios = [s / c for s, c in zip(taken["static"], taken["continuous"], strict=True)]
    steps = {policy: len(work.round_details().steps) for policy, work in works.items()}
    print(f"\n{model}, {requests} requests, batch 8: steps {steps}")
    print(
        f"static {statistics.median(taken['static']):.2f} s, continuous "
        f"{statistics.median(taken['continuous']):.2f} s: {statistics.median(ratios):.2f} x in time, "
        f"{steps['static'] / steps['continuous']:.2f} x in steps"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=24)
    arguments = parser.parse_args()
    play(arguments.seed)
    if arguments.model:
        measure(arguments.model, arguments.rounds, arguments.requests)


if __name__ == "__main__":
    main()
