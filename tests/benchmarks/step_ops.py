"""What one decode step of the demo model starts, op by op, and what that costs beside its products.

    python tests/benchmarks/step_ops.py [--context 512] [--batch 1] [--threads N]
        [--layout contiguous|paged] [--kv-dtype as_weights|int8|fp8]

Prints the operators of a step as torch dispatches them, the time of each op group (10th percentile
of the calls: a busy machine only slows), and the step's time eagerly and replayed, in turn. Passes
(exit code 0) where everything but products and embedding takes at most 1.5 ms of a replayed step.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping

import torch

from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.execution import make_runner
from llmprof.engine.execution.runner import StepRunner
from llmprof.engine.kv_cache import KvPool
from llmprof.engine.probe import NullProbe, Probe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.static_batch import StaticBatch
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.instruments.snapshot import resolve_threads
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.settings import ExecutionMode, RunConfig

MODEL = "smollm2-135m-instruct"
STEPS = 40
TURNS = 5
WANTED_S = 1.5e-3
PRODUCTS = (*PROJECTIONS, OpGroup.EMBEDDING)


class GroupTimes:
    """Time of every call of a group."""

    def __init__(self) -> None:
        self.calls: dict[OpGroup, list[float]] = {}
        self._open: tuple[OpGroup, float] = (OpGroup.OTHER, 0.0)

    def step_begin(self, shape: StepShape) -> None:
        pass

    def step_end(self) -> None:
        pass

    def group_begin(self, group: OpGroup) -> None:
        self._open = group, time.perf_counter()

    def group_end(self) -> None:
        group, start = self._open
        self.calls.setdefault(group, []).append(time.perf_counter() - start)


def main() -> int:
    arguments = _arguments()
    config = RunConfig.model_validate(
        {
            "model": MODEL,
            "workload": {"batch": arguments.batch, "prompt_tokens": arguments.context},
            "kv_cache": {"layout": arguments.layout, "dtype": arguments.kv_dtype},
        }
    )
    threads = resolve_threads(arguments.threads)
    engine = Engine.load(
        resolve_model(MODEL),
        config,
        device="cpu",
        threads=threads,
        host_available_bytes=host_memory().available_bytes,
    )
    runners = {
        mode.value: make_runner(mode, device="cpu", layout=config.kv_cache.layout)
        for mode in (ExecutionMode.EAGER, ExecutionMode.COMPILED)
    }
    bench = _Bench(engine, arguments.batch, arguments.context)
    print(
        f"{MODEL}, context {arguments.context}, batch {arguments.batch}, {threads} threads, "
        f"KV {arguments.layout} {engine.kv_dtype}"
    )
    bench.print_operators()
    bench.print_steps(runners)
    rest_s = bench.print_groups(runners)
    print(f"all but products and embedding: {rest_s['compiled'] * 1e3:.2f} ms of a replayed step")
    return 0 if rest_s["compiled"] <= WANTED_S else 1


class _Bench:
    """A batch with a filled cache, stepped from the same place by whoever runs it."""

    def __init__(self, engine: Engine, batch: int, context: int) -> None:
        self._engine = engine
        self._context = context
        prompts = torch.randint(engine.model.vocab_size, (batch, context))
        self._batch: StaticBatch = engine.open_batch(prompts, output_tokens=STEPS + 2)
        assert isinstance(self._batch.cache, KvPool)
        self._batch.cache.fill_random(0)
        self._sampler = GreedySampler()

    def print_operators(self) -> None:
        recorder = OpRecorder()
        sequence = SequenceShape(count=self._batch.batch, new_tokens=1, cached_tokens=self._context)
        shape = StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=self._batch.batch)
        eager = make_runner(ExecutionMode.EAGER, device="cpu", layout=self._engine.kv_cache.layout)
        self._batch.restart(num_cached=self._context)
        self._step(eager, NullProbe())
        with recorder:
            recorder.step_begin(shape)
            self._step(eager, recorder)
            recorder.step_end()
        (counted,) = recorder.steps()
        for op in counted.ops:
            print(f"  {op.calls:4d} x {op.op:28s} {op.group.value}")
        calls = sum(op.calls for op in counted.ops)
        print(f"  {calls} operators per step")

    def print_steps(self, runners: dict[str, StepRunner]) -> None:
        times = self._times(runners, dict.fromkeys(runners, NullProbe()))
        for name, of_steps in times.items():
            best, middle = min(of_steps), statistics.median(of_steps)
            print(f"  {name:10s} step: best {best * 1e3:6.2f} ms, median {middle * 1e3:6.2f} ms")

    def print_groups(self, runners: dict[str, StepRunner]) -> dict[str, float]:
        """Seconds per step outside of products and embedding, by runner."""
        probes = {name: GroupTimes() for name in runners}
        self._times(runners, probes)
        rest = dict.fromkeys(runners, 0.0)
        print(f"  {'us per step':20s}" + "".join(f"{name:>12s}" for name in runners))
        for group in probes["eager"].calls:
            row = {name: self._per_step(probe, group) for name, probe in probes.items()}
            print(f"  {group.value:20s}" + "".join(f"{s * 1e6:12.0f}" for s in row.values()))
            if group not in PRODUCTS:
                rest = {name: rest[name] + row[name] for name in rest}
        return rest

    def _per_step(self, probe: GroupTimes, group: OpGroup) -> float:
        calls = sorted(probe.calls.get(group, [0.0]))
        return calls[len(calls) // 10] * len(calls) / (TURNS * STEPS)

    def _times(
        self, runners: dict[str, StepRunner], probes: Mapping[str, Probe]
    ) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in runners}
        for turn in range(TURNS + 1):
            for name, runner in runners.items():
                self._batch.restart(num_cached=self._context)
                probe = probes[name] if turn else NullProbe()
                for _ in range(STEPS):
                    start = time.perf_counter()
                    self._step(runner, probe)
                    if turn:
                        times[name].append(time.perf_counter() - start)
        return times

    @torch.inference_mode()
    def _step(self, runner: StepRunner, probe: Probe) -> None:
        batch, engine = self._batch, self._engine
        step = batch.next_step()
        logits = runner.forward(engine.decoder, step, batch.cache, batch.rotary, probe)
        engine.sample(logits, self._sampler, batch.tokens.narrow(1, batch.num_tokens, 1), probe)
        batch.advance()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--layout", choices=["contiguous", "paged"], default="contiguous")
    parser.add_argument("--kv-dtype", choices=["as_weights", "int8", "fp8"], default="as_weights")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
