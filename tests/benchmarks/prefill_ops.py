"""Each op of a prefill of the demo model beside the matmul ceiling of the same minutes, and beside torch.

    python tests/benchmarks/prefill_ops.py [--tokens 512] [--turns 12] [--threads N]

Every turn reads the ceiling, runs each op of a layer once for all layers' worth of weights (so that
weights arrive from memory, as they do in a prefill), ours and torch's in turn, and a whole prefill.
Times are the best turn's; shares of the ceiling are medians over turns. Passes (exit code 0) where
the prefill reaches 0.65 of the ceiling.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from llmprof.architectures.source import resolve_model
from llmprof.ceilings.live import LiveCeilings
from llmprof.costs.step import step_cost
from llmprof.engine.activation import gated
from llmprof.engine.attention.flash import many_tokens_folded
from llmprof.engine.description import cost_options
from llmprof.engine.engine import Engine
from llmprof.engine.kernels.attention_prefill import prefill_attention
from llmprof.engine.probe import NullProbe
from llmprof.engine.residual import add_
from llmprof.engine.workload import CeilingNeeds
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.snapshot import resolve_threads, snapshot
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.settings import RunConfig

MODEL = "smollm2-135m-instruct"
WANTED = 0.65
Run = Callable[[], object]


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
    needs = CeilingNeeds(64 << 20, engine.dtype.name, None, ())
    live = LiveCeilings(needs, snapshot("cpu", threads))
    bench = _Bench(engine, arguments.tokens)
    flops = {**bench.flops(), "prefill": bench.prefill_flops(config)}
    runs = {**bench.ours(), "prefill": bench.prefill}
    beside = bench.torchs()
    times: dict[str, list[float]] = {name: [] for name in (*runs, *(f"torch {n}" for n in beside))}
    ceilings = []
    with torch.inference_mode():
        for turn in range(arguments.turns + 1):
            ceiling = live.read(0.0).matmul_flops_per_s
            for name, run in (*runs.items(), *((f"torch {n}", r) for n, r in beside.items())):
                start = time.perf_counter()
                run()
                if turn:
                    times[name].append(time.perf_counter() - start)
            if turn:
                ceilings.append(ceiling)
    print(f"{MODEL} {engine.dtype.name}, {arguments.tokens} tokens, {threads} threads")
    print(
        f"  ceiling: best {max(ceilings) / 1e12:.2f}, median {_middle(ceilings) / 1e12:.2f} TFLOP/s"
    )
    print(
        f"  {'all layers':14s}{'best ms':>9s}{'median':>9s}{'TFLOP/s':>9s}{'share':>7s}{'torch ms':>10s}"
    )
    shares = {}
    for name in runs:
        rates = [flops[name] / s for s in times[name]] if flops.get(name) else []
        shares[name] = (
            _middle([r / c for r, c in zip(rates, ceilings, strict=False)]) if rates else 0
        )
        rate = f"{max(rates) / 1e12:9.2f}{shares[name]:7.2f}" if rates else " " * 16
        torchs = f"{min(times[f'torch {name}']) * 1e3:10.2f}" if name in beside else ""
        best, middle = min(times[name]) * 1e3, _middle(times[name]) * 1e3
        print(f"  {name:14s}{best:9.2f}{middle:9.2f}{rate}{torchs}")
    return 0 if shares["prefill"] >= WANTED else 1


class _Bench:
    """All layers' worth of each op, on random activations."""

    def __init__(self, engine: Engine, tokens: int) -> None:
        model = engine.model
        self._engine = engine
        self._tokens = tokens
        self._layers = engine.decoder.layers
        self._prompt = torch.randint(model.vocab_size, (1, tokens))
        self._batch = engine.open_batch(self._prompt, output_tokens=2)
        heads = model.num_attention_heads + 2 * model.num_key_value_heads
        self._hidden = torch.randn(tokens, model.hidden_size).bfloat16()
        self._attended = torch.randn(tokens, model.query_size).bfloat16()
        self._inner = torch.randn(tokens, model.intermediate_size).bfloat16()
        self._gate_up = torch.randn(tokens, 2 * model.intermediate_size).bfloat16()
        self._heads = torch.randn(tokens, heads, model.head_dim).bfloat16()
        shape = (2, 1, model.num_key_value_heads, tokens, model.head_dim)
        self._keys, self._values = torch.randn(shape).bfloat16().unbind(0)

    def ours(self) -> dict[str, Run]:
        first = self._layers[0]
        query = self._heads[:, : self._engine.model.num_attention_heads]
        return {
            "attention": self._each(lambda _: prefill_attention(query, self._keys, self._values)),
            "gate_up": self._each(lambda layer: layer.gate_up(self._hidden)),
            "down": self._each(lambda layer: layer.down(self._inner)),
            "qkv": self._each(lambda layer: layer.qkv(self._hidden)),
            "output": self._each(lambda layer: layer.output(self._attended)),
            "activation": self._each(lambda _: gated(self._gate_up)),
            "norms": self._each(lambda _: [first.input_norm(self._hidden) for _ in range(2)]),
            "residuals": self._each(
                lambda _: [add_(self._hidden, self._attended) for _ in range(2)]
            ),
        }

    def torchs(self) -> dict[str, Run]:
        model = self._engine.model
        query = self._heads[:, : model.num_attention_heads]
        group = model.num_attention_heads // model.num_key_value_heads
        queries = query.view(1, self._tokens, -1, group, model.head_dim).permute(0, 2, 3, 1, 4)

        def product(x: torch.Tensor, name: str) -> Run:
            return self._each(lambda layer: functional.linear(x, getattr(layer, name).weight))

        return {
            "attention": self._each(
                lambda _: many_tokens_folded(queries, self._keys, self._values, {"is_causal": True})
            ),
            "gate_up": product(self._hidden, "gate_up"),
            "down": product(self._inner, "down"),
            "qkv": product(self._hidden, "qkv"),
            "output": product(self._attended, "output"),
        }

    def flops(self) -> dict[str, float]:
        """Of all layers; attention's as the causal mask leaves them."""
        model, layer = self._engine.model, self._layers[0]
        products = {
            name: 2.0 * self._tokens * getattr(layer, name).shape[0] * getattr(layer, name).shape[1]
            for name in ("gate_up", "down", "qkv", "output")
        }
        attention = 2.0 * self._tokens * (self._tokens + 1) * model.query_size
        return {n: len(self._layers) * f for n, f in {**products, "attention": attention}.items()}

    def prefill_flops(self, config: RunConfig) -> float:
        sequence = SequenceShape(count=1, new_tokens=self._tokens, cached_tokens=0)
        shape = StepShape(phase=Phase.PREFILL, sequences=(sequence,), logit_rows=1)
        options = cost_options(self._engine, config)
        return step_cost(self._engine.model, self._engine.manifest, shape, options).flops

    def prefill(self) -> None:
        batch, engine = self._batch, self._engine
        batch.restart(num_cached=0)
        step = batch.next_step()
        engine.runner.forward(engine.decoder, step, batch.cache, batch.rotary, NullProbe())

    def _each(self, run: Callable[..., object]) -> Run:
        def all_layers() -> None:
            for layer in self._layers:
                run(layer)

        return all_layers


def _middle(numbers: Sequence[float]) -> float:
    return statistics.median(numbers)


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
