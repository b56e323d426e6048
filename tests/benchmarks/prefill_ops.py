"""Each op group of a prefill of the demo model beside the matmul ceiling, with our kernels and torch's.

    python tests/benchmarks/prefill_ops.py [--tokens 512] [--turns 12] [--threads N]

Every turn reads the ceiling and runs the same prefill twice: with the kernels that the engine
chooses, and with torch's attention and products instead. Times are those of a whole prefill, so that
weights arrive from memory and activations from the other core, as they do in a run. Passes (exit
code 0) where the prefill reaches 0.65 of the ceiling in the median of the turns.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import torch

from llmprof.architectures.source import resolve_model
from llmprof.ceilings.live import LiveCeilings
from llmprof.costs.step import step_cost
from llmprof.engine import linear, residual
from llmprof.engine.description import cost_options
from llmprof.engine.engine import Engine
from llmprof.engine.workload import CeilingNeeds
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.snapshot import resolve_threads, snapshot
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.settings import RunConfig

MODEL = "smollm2-135m-instruct"
WANTED = 0.65


def main() -> int:
    arguments = _arguments()
    threads = resolve_threads(arguments.threads)
    config = RunConfig.model_validate({"model": MODEL})
    engine = Engine.load(
        resolve_model(MODEL),
        config,
        device="cpu",
        threads=threads,
        host_available_bytes=host_memory().available_bytes,
    )
    live = LiveCeilings(
        CeilingNeeds(64 << 20, engine.dtype.name, None, ()), snapshot("cpu", threads)
    )
    prefill = _Prefill(engine, arguments.tokens)
    ours, torchs, ceilings = _Times(), _Times(), []
    for turn in range(arguments.turns + 1):
        ceiling = live.read(0.0).matmul_flops_per_s
        by_us = prefill.run()
        with _torch_only(engine):
            by_torch = prefill.run()
        if turn:  # the first one compiles
            ceilings.append(ceiling)
            ours.add(by_us)
            torchs.add(by_torch)
    print(f"{MODEL} {engine.dtype.name}, {arguments.tokens} tokens, {threads} threads")
    print(f"  matmul ceiling: {_rates(ceilings)}")
    return _report(ours, torchs, ceilings, prefill.cost(config))


class _Prefill:
    """The same prompt again and again."""

    def __init__(self, engine: Engine, tokens: int) -> None:
        self._engine = engine
        self._tokens = tokens
        prompt = torch.randint(engine.model.vocab_size, (1, tokens))
        self._batch = engine.open_batch(prompt, output_tokens=2)

    def cost(self, config: RunConfig) -> StepCost:
        sequence = SequenceShape(count=1, new_tokens=self._tokens, cached_tokens=0)
        shape = StepShape(phase=Phase.PREFILL, sequences=(sequence,), logit_rows=1)
        options = cost_options(self._engine, config)
        return step_cost(self._engine.model, self._engine.manifest, shape, options)

    @torch.inference_mode()
    def run(self) -> dict[str, float]:
        """Seconds by op group, and of all."""
        batch, engine, probe = self._batch, self._engine, _GroupSums()
        batch.restart(num_cached=0)
        start = time.perf_counter()
        engine.runner.forward(engine.decoder, batch.next_step(), batch.cache, batch.rotary, probe)
        return {**probe.seconds, "all": time.perf_counter() - start}


class _GroupSums:
    """A probe that adds up the calls of each group."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: tuple[OpGroup, float] = (OpGroup.OTHER, 0.0)

    def step_begin(self, shape: StepShape) -> None:
        pass

    def step_end(self) -> None:
        pass

    def group_begin(self, group: OpGroup) -> None:
        self._open = group, time.perf_counter()

    def group_end(self) -> None:
        group, start = self._open
        spent = self.seconds.get(group.value, 0.0)
        self.seconds[group.value] = spent + time.perf_counter() - start


class _Times:
    def __init__(self) -> None:
        self.by_name: dict[str, list[float]] = {}

    def add(self, seconds: dict[str, float]) -> None:
        for name, spent in seconds.items():
            self.by_name.setdefault(name, []).append(spent)


@contextmanager
def _torch_only(engine: Engine) -> Iterator[None]:
    attention = engine.decoder.attention
    kernel, attention.prefill_kernel = attention.prefill_kernel, None
    with (
        mock.patch.object(linear, "matmul_fits", return_value=False),
        mock.patch.object(residual, "runs_native", return_value=False),
    ):
        yield
    attention.prefill_kernel = kernel


def _report(ours: _Times, torchs: _Times, ceilings: Sequence[float], cost: StepCost) -> int:
    print(
        f"  {'':20s}{'best ms':>9s}{'median':>9s}{'TFLOP/s':>9s}{'of ceiling':>12s}"
        f"{'torch best':>12s}{'median':>9s}{'speedup':>9s}"
    )
    share = 0.0
    for name, times in ours.by_name.items():
        flops = cost.flops if name == "all" else cost.of_groups(OpGroup(name)).flops
        share = statistics.median(
            flops / s / ceiling for s, ceiling in zip(times, ceilings, strict=True)
        )
        beside = torchs.by_name[name]
        speedup = statistics.median(b / a for a, b in zip(times, beside, strict=True))
        rate = f"{flops / min(times) / 1e12:9.2f}{share:12.2f}" if flops else " " * 21
        print(
            f"  {name:20s}{min(times) * 1e3:9.2f}{statistics.median(times) * 1e3:9.2f}{rate}"
            f"{min(beside) * 1e3:12.2f}{statistics.median(beside) * 1e3:9.2f}{speedup:9.2f}"
        )
    return 0 if share >= WANTED else 1


def _rates(values: Sequence[float]) -> str:
    best, middle = max(values) / 1e12, statistics.median(values) / 1e12
    return f"best {best:.2f}, median {middle:.2f} TFLOP/s"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--threads", type=int, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
