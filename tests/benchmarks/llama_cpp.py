"""Decode and prefill beside llama.cpp, interleaved in one process: paired ratios, not absolute figures.

    python tests/benchmarks/llama_cpp.py --bin BUILD/bin --models FOLDER [--rounds 5]

BUILD is a release build of llama.cpp (the `llama-cpp-python` source distribution carries its source:
`cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON`, targets llama-bench, llama-batched-bench and
llama-quantize). FOLDER holds the demo model as smol-BF16.gguf, smol-Q8_0.gguf and smol-Q4_0.gguf, made
from the installed Q4_1 file with `llama-quantize --allow-requantize`. Wants a quiet machine.
"""

import argparse
import json
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.open_workload import open_workload
from llmprof.engine.workload import Workload
from llmprof.instruments.clock import HostClock
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.tracer import StepTracer
from llmprof.schema.cost import Phase
from llmprof.schema.settings import RunConfig

GENERATED = 64
PREFILL = 512
BATCH, BATCH_PROMPT, BATCH_GENERATED = 8, 128, 32


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    weights: dict[str, object]
    theirs: str


FORMATS = (
    Format("bf16", {"dtype": "bf16"}, "BF16"),
    Format("int8", {"dtype": "bf16", "quantization": "int8"}, "Q8_0"),
    Format("int4", {"dtype": "bf16", "quantization": "int4", "group_size": 32}, "Q4_0"),
)


def main() -> None:
    arguments = _arguments()
    for one in FORMATS:
        if one.name in arguments.formats:
            _decode(arguments, one)
    if "prefill" in arguments.formats:
        _prefill(arguments)
    if "batch" in arguments.formats:
        _batch(arguments)


def _decode(arguments: argparse.Namespace, one: Format) -> None:
    workload = _open(arguments, one, batch=1, prompt=1, output=GENERATED + 1)
    file = arguments.models / f"smol-{one.theirs}.gguf"

    def theirs() -> float:
        return _llama_bench(arguments, file, "-p", "0", "-n", str(GENERATED))

    _compare(
        f"decode {one.name} against {one.theirs}, output tok/s",
        arguments.rounds,
        lambda: 1 / _median_step_s(workload, Phase.DECODE),
        theirs,
    )


def _prefill(arguments: argparse.Namespace) -> None:
    workload = _open(arguments, FORMATS[0], batch=1, prompt=PREFILL, output=1)
    file = arguments.models / "smol-BF16.gguf"
    _compare(
        f"prefill bf16 of {PREFILL} tokens, prompt tok/s",
        arguments.rounds,
        lambda: PREFILL / _median_step_s(workload, Phase.PREFILL),
        lambda: _llama_bench(arguments, file, "-p", str(PREFILL), "-n", "0"),
    )


def _batch(arguments: argparse.Namespace) -> None:
    """Our best format against their best format, total output tokens per second at batch 8."""
    ours = {
        one.name: _open(
            arguments, one, batch=BATCH, prompt=BATCH_PROMPT, output=BATCH_GENERATED + 1
        )
        for one in FORMATS
    }
    results: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for one in FORMATS:
            rate = BATCH / _median_step_s(ours[one.name], Phase.DECODE)
            results.setdefault(f"ours {one.name}", []).append(rate)
            file = arguments.models / f"smol-{one.theirs}.gguf"
            results.setdefault(f"theirs {one.theirs}", []).append(_batched_bench(arguments, file))
    for name, rates in results.items():
        print(f"  batch {BATCH} {name:<12} {_spread(rates)} total output tok/s")
    best = {
        side: max(statistics.median(v) for k, v in results.items() if k.startswith(side))
        for side in ("ours", "theirs")
    }
    print(f"batch {BATCH}, best against best: {best['ours'] / best['theirs']:.2f} x")


def _compare(
    title: str, rounds: int, ours: Callable[[], float], theirs: Callable[[], float]
) -> None:
    ours()
    theirs()
    pairs = []
    for index in range(rounds):
        pairs.append((ours(), theirs()) if index % 2 == 0 else tuple(reversed((theirs(), ours()))))
    ratios = [mine / other for mine, other in pairs]
    print(title)
    print(f"  ours   {_spread([mine for mine, _ in pairs])}")
    print(f"  theirs {_spread([other for _, other in pairs])}")
    print(f"  ratio  {_spread(ratios)} over {rounds} pairs", flush=True)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):8.2f} [{min(values):.2f}, {max(values):.2f}]"


def _open(
    arguments: argparse.Namespace, one: Format, *, batch: int, prompt: int, output: int
) -> Workload:
    config = RunConfig.model_validate(
        {
            "model": arguments.model,
            "weights": one.weights,
            "execution": {"threads": arguments.threads},
            "workload": {"batch": batch, "prompt_tokens": prompt, "output_tokens": output},
        }
    )
    engine = Engine.load(
        resolve_model(config.model),
        config,
        device="cpu",
        threads=arguments.threads,
        host_available_bytes=host_memory().available_bytes,
    )
    workload = open_workload(engine, config)
    _median_step_s(workload, None)
    return workload


def _median_step_s(workload: Workload, phase: Phase | None) -> float:
    tracer = StepTracer(HostClock(), None, 0)
    workload.run_round(tracer)
    steps = [step for step in tracer.samples() if phase is None or step.shape.phase is phase]
    return statistics.median(step.duration_s for step in steps)


def _llama_bench(arguments: argparse.Namespace, file: Path, *flags: str) -> float:
    command = [arguments.bin / "llama-bench", "-m", file, "-t", str(arguments.threads), *flags]
    done = subprocess.run(
        [*map(str, command), "-r", "1", "-o", "json"], capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout)[0]["avg_ts"])


def _batched_bench(arguments: argparse.Namespace, file: Path) -> float:
    command = [arguments.bin / "llama-batched-bench", "-m", file, "-c", "4096", "-t"]
    command += [arguments.threads, "-npp", BATCH_PROMPT, "-ntg", BATCH_GENERATED, "-npl", BATCH]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    row = [line for line in done.stdout.splitlines() if line.startswith("|")][-1]
    return float(row.split("|")[8])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--formats", nargs="*", default=["bf16", "int8", "int4", "prefill", "batch"]
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
