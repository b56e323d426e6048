"""The ledger's own test on this machine: a known host sleep must appear as host time and nowhere else.

    python tests/benchmarks/ledger_injection.py [--model smollm2-135m-instruct] [--sleep-ms 5] [--pairs 3]

The host spins through its sleep: a real one parks the thread pool, which costs the next step more.
Runs the model with and without it in turn, prints every part of decode's ledger, how far it
moved, and what the group times measured apart sum to against the clean step. Wants a quiet machine.
"""

import argparse
import statistics

from llmprof.analysis.report import build_report
from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.injection import HostSleep
from llmprof.instruments.snapshot import resolve_threads
from llmprof.profiler import measure
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Ledger, Part
from llmprof.schema.settings import RunConfig


def main() -> None:
    arguments = _arguments()
    config = RunConfig.model_validate(
        {
            "model": arguments.model,
            "weights": {"dtype": "bf16", "source": arguments.weights},
            "workload": {"prompt_tokens": arguments.prompt_tokens, "output_tokens": 24},
            "measure": {"rounds": 5},
        }
    )
    threads = resolve_threads(None)
    source = resolve_model(config.model, weights=config.weights.source)
    engine = Engine.load(
        source,
        config,
        device="cpu",
        threads=threads,
        host_available_bytes=host_memory().available_bytes,
    )
    workload = EngineWorkload(engine, config)
    pairs = [
        (
            _decode_ledger(workload, config, threads, sleep_s=0.0),
            _decode_ledger(workload, config, threads, sleep_s=arguments.sleep_ms / 1e3),
        )
        for _ in range(arguments.pairs)
    ]
    _print_parts(pairs, arguments.sleep_ms / 1e3)


def _decode_ledger(
    workload: EngineWorkload, config: RunConfig, threads: int, *, sleep_s: float
) -> Ledger:
    record = measure(
        workload,
        config,
        device="cpu",
        threads=threads,
        inject=(lambda probe: HostSleep(probe, sleep_s, busy=True)) if sleep_s else None,
    )
    report = build_report(record)
    for caveat in report.caveats:
        if caveat.code in ("contended", "throttled", "grouped-scale"):
            print(f"  ! {caveat.code}: {caveat.message}")
    return next(ledger for ledger in report.ledgers if ledger.phase is Phase.DECODE)


def _part_s(ledger: Ledger, part: Part) -> float:
    return sum(entry.time_s.point for entry in ledger.parts if entry.part is part)


def _print_parts(pairs: list[tuple[Ledger, Ledger]], sleep_s: float) -> None:
    print(f"{'part':<16} {'without':>10} {'with sleep':>10} {'moved':>10}  moved / sleep")
    for part in Part:
        base = statistics.median(_part_s(one, part) for one, _ in pairs)
        slept = statistics.median(_part_s(other, part) for _, other in pairs)
        moved = statistics.median(_part_s(b, part) - _part_s(a, part) for a, b in pairs)
        if base or slept:
            print(
                f"{part.value:<16} {base * 1e3:7.3f} ms {slept * 1e3:7.3f} ms {moved * 1e3:+7.3f} ms"
                f"  {moved / sleep_s:+7.1%}"
            )
    step = statistics.median(b.step_s.point - a.step_s.point for a, b in pairs)
    print(f"{'step':<16} {'':>10} {'':>10} {step * 1e3:+7.3f} ms  {step / sleep_s:+7.1%}")
    for base_ledger, _ in pairs:
        grouped = sum(entry.time_s.point for entry in base_ledger.groups)
        print(
            f"groups sum to {grouped / base_ledger.step_s.point:.1%} of the clean step; "
            f"clean over grouped step {base_ledger.grouped_scale:.3f}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--weights", default="file", choices=("file", "random"))
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--sleep-ms", type=float, default=5.0)
    parser.add_argument("--pairs", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
