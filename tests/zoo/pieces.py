"""The pieces that a planted step is made of: each does a known amount of work of one kind."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from llmprof.ceilings.matmul_kernels import matmul_kernels
from llmprof.ceilings.pool import Stream
from llmprof.ceilings.read_kernels import ReadKernel
from llmprof.schema.cost import ByteTraffic, OpCost, OpGroup

_SPUN_S = 0.001
"""The end of a sleep, so that the timer's slack does not lengthen it."""
_TINY_NUMEL = 576


@dataclass(frozen=True, slots=True)
class Piece:
    """Work of one op group, or host time between the groups (`cost` is None then)."""

    name: str
    run: Callable[[], object]
    cost: OpCost | None = None


def read(kernel: ReadKernel, stream: Stream, size_bytes: int, *, passes: int = 1) -> Piece:
    """The next `size_bytes` of a stream of float32, each pass over the same ones."""
    numel = size_bytes // stream.pool.itemsize
    total = float(numel * stream.pool.itemsize * passes)

    def run() -> None:
        kernel.read(stream.take(numel), passes)

    return Piece("read", run, _cost(OpGroup.DOWN_PROJECTION, traffic=ByteTraffic(weights=total)))


def multiply(dtype: str, device: str, shape: tuple[int, int, int], calls: int) -> Piece:
    """`calls` products [m, k] x [k, n], 2 m n k FLOP each."""
    product = matmul_kernels(dtype, device)[0].prepare(shape)
    m, n, k = shape
    width = {"fp32": 4, "int8": 1}.get(dtype, 2)

    def run() -> None:
        for _ in range(calls):
            product()

    return Piece(
        "multiply",
        run,
        _cost(
            OpGroup.GATE_UP_PROJECTION,
            calls=calls,
            dtype=dtype,
            flops=2.0 * m * n * k * calls,
            traffic=ByteTraffic(
                weights=float(width * n * k * calls),
                activations=float(width * (m * k + m * n) * calls),
            ),
        ),
    )


def tiny_ops(calls: int, device: str, *, kind: str | None = None) -> Piece:
    """Additions, products, copies and roots of a row of numbers: hardly more than their own start.

    All kinds in turn, or one `kind` alone: `add`, `mul`, `copy_` or `rsqrt`.
    """
    a, b, out = (torch.ones(_TINY_NUMEL, device=device) for _ in range(3))
    every = {
        "add": partial(torch.add, a, b, out=out),
        "mul": partial(torch.mul, a, b, out=out),
        "copy_": partial(out.copy_, a),
        "rsqrt": partial(torch.rsqrt, a, out=out),
    }
    kinds = list(every.values()) if kind is None else [every[kind]]
    in_turn = [kinds[call % len(kinds)] for call in range(calls)]

    def run() -> None:
        for op in in_turn:
            op()

    traffic = ByteTraffic(activations=12.0 * _TINY_NUMEL * calls)
    return Piece("tiny ops", run, _cost(OpGroup.NORM, calls=calls, dtype="fp32", traffic=traffic))


def host_sleep(seconds: float) -> Piece:
    """The host does nothing for so long; on a device that runs asynchronously work goes on."""

    def run() -> None:
        deadline = time.perf_counter() + seconds
        if seconds > _SPUN_S:
            time.sleep(seconds - _SPUN_S)
        while time.perf_counter() < deadline:
            pass

    return Piece("sleep", run)


def _cost(
    group: OpGroup,
    *,
    traffic: ByteTraffic,
    calls: int = 1,
    dtype: str = "bf16",
    flops: float = 0.0,
) -> OpCost:
    return OpCost(
        name=group.value,
        group=group,
        calls=calls,
        compute_dtype=dtype,
        flops=flops,
        flops_dense=flops,
        flops_causal=flops,
        traffic=traffic,
    )
