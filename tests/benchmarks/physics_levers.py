"""Attention kinds, the KV cache itself, batching and weight formats on the demo model."""

import gc
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llmprof.engine.linear import Linear
from llmprof.engine.model import Decoder
from llmprof.schema.settings import RunConfig
from tests.benchmarks.physics_cells import Cell, cell, in_turn, load, median_ms

MODEL: Final = "smollm2-135m-instruct"
BF16: Final = {"dtype": "bf16"}
PROMPTS: Final = (2048, 4096, 8128)
GROWING: Final = (64, 256, 512, 1024)
BATCHES: Final = (1, 2, 4, 8, 16)


def flash(rounds: int) -> bool:
    """Peak memory of a prefill above what was held before it, and its time."""
    print(
        "flash: prefill of the demo model, bf16; scores of standard attention are heads x tokens^2"
    )
    cells = {
        (kind, tokens): cell(MODEL, tokens, weights=BF16, attention={"kind": kind})
        for tokens in PROMPTS
        for kind in ("standard", "flash")
    }
    peaks = {name: _peak_bytes(one.prefill_s) for name, one in cells.items()}
    seconds = in_turn(min(rounds, 3), {name: one.prefill_s for name, one in cells.items()})
    for tokens in PROMPTS:
        standard, fast = ("standard", tokens), ("flash", tokens)
        scores = 9 * tokens * tokens * 2
        gain = statistics.median(
            a / b for a, b in zip(seconds[standard], seconds[fast], strict=True)
        )
        print(
            f"  {tokens:5d} tokens  peak {peaks[standard] / 2**20:7.0f} MiB standard "
            f"(one layer's scores in bf16: {scores / 2**20:.0f} MiB), {peaks[fast] / 2**20:5.0f} MiB "
            f"flash; {median_ms(seconds[standard]):7.0f} and {median_ms(seconds[fast]):6.0f} ms, "
            f"{gain:.2f} x"
        )
    return True


def cache(rounds: int) -> bool:
    """One more token of a growing text."""
    print("cache: ms for the next token of the demo model, bf16")
    none = cell(MODEL, GROWING[-1], weights=BF16, kv_cache={"layout": "none"})
    cached = cell(MODEL, GROWING[-1], weights=BF16)
    seconds = in_turn(
        min(rounds, 5),
        {
            (name, tokens): _decode(one, tokens, 1)
            for name, one in (("none", none), ("contiguous", cached))
            for tokens in GROWING
        },
    )
    for tokens in GROWING:
        print(
            f"  after {tokens:5d} tokens  {median_ms(seconds['none', tokens]):8.1f} without a cache, "
            f"{median_ms(seconds['contiguous', tokens]):6.1f} with one"
        )
    return True


def batch(rounds: int) -> bool:
    """A step reads the weights once, for however many sequences."""
    print("batch: decode of the demo model, bf16, context 512")
    cells = {size: cell(MODEL, 512, sequences=size, weights=BF16) for size in BATCHES}
    seconds = in_turn(rounds, {size: _decode(one, 512, 4) for size, one in cells.items()})
    alone = seconds[1]
    weights = cells[1].engine.manifest.stored_bytes
    for size in BATCHES:
        gain = statistics.median(size * a / b for a, b in zip(alone, seconds[size], strict=True))
        print(
            f"  batch {size:2d}  {median_ms(seconds[size]):6.1f} ms per step, weights "
            f"{weights / size / 1e6:5.1f} MB per token, {gain:5.2f} x as many tokens per second"
        )
    return True


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How many bytes a row takes: codes, and what each group of them adds."""

    code_bytes: float
    group: int = 1
    group_bytes: int = 0

    def num_bytes(self, rows: int, columns: int) -> int:
        return rows * (
            int(columns * self.code_bytes) + -(-columns // self.group) * self.group_bytes
        )


_FP16_BYTES: Final = 2
_INT8: Final = Arithmetic(1, 32, _FP16_BYTES)


def formats(rounds: int) -> bool:
    """Packed weights are as large as their arithmetic says, and nothing else is kept."""
    del rounds
    print("formats: bytes of the demo model's real weight tensors")
    ok = True
    for name, settings, projection, head in _formats():
        decoder = load(RunConfig.model_validate({"model": MODEL, "weights": settings})).decoder
        linears = list(_projections(decoder))
        real = sum(one.weight.nbytes for one in (decoder.embedding, *linears))
        expected = head.num_bytes(*decoder.embedding.shape)
        expected += sum(projection.num_bytes(*linear.shape) for linear in linears)
        ok &= real == expected and decoder.head.weight is decoder.embedding.weight
        print(
            f"  {name:16} {real:>11,d} bytes, by arithmetic {expected:>11,d}: "
            f"{'exact' if real == expected else 'WRONG'}"
        )
    return ok


def _formats() -> Iterator[tuple[str, dict[str, Any], Arithmetic, Arithmetic]]:
    """Settings, and the arithmetic of projections and of the tied head."""
    yield "bf16", BF16, Arithmetic(2), Arithmetic(2)
    yield "int8 g32", {**BF16, "quantization": "int8"}, _INT8, _INT8
    for size in (32, 64, 128):
        int4 = {**BF16, "quantization": "int4", "group_size": size}
        yield f"int4 g{size}", int4, Arithmetic(0.5, size, 2 * _FP16_BYTES), _INT8
        symmetric = {**int4, "symmetric": True}
        yield f"int4 g{size} sym", symmetric, Arithmetic(0.5, size, _FP16_BYTES), _INT8


def _projections(decoder: Decoder) -> Iterator[Linear]:
    for layer in decoder.layers:
        yield from (layer.qkv, layer.output, *layer.feed_forward.projections)


def _decode(one: Cell, tokens: int, steps: int) -> Callable[[], float]:
    return lambda: one.decode_s(tokens, steps)


def _peak_bytes(call: Callable[[], object]) -> int:
    """Resident memory at its highest during a call, above what it was before (Linux)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    call()
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise OSError(f"no {name} in /proc/self/status")
