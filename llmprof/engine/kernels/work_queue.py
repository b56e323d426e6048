"""Pieces of work that threads take one by one, as LLVM IR.

Equal shares end when the slowest thread does, which on a machine that others use is late: a thread
that is kept waiting for its core takes fewer pieces instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.vector_ir import I64, index_constant

COUNTER_BYTES: Final = 64
"""Of scratch memory, at its start: a cache line."""


def clear_counter(body: KernelBody) -> None:
    """Before the threads start."""
    body.builder.store(index_constant(0), body.pointer(body.scratch_slot, I64))


@contextmanager
def each_piece(body: KernelBody, count: Any) -> Iterator[Any]:
    """Build the body of `while one of the pieces 0 ... count - 1 is left: take it`."""
    builder = body.builder
    counter = body.pointer(body.scratch_slot, I64)
    head = builder.append_basic_block("take")
    inside = builder.append_basic_block("piece")
    after = builder.append_basic_block("done")
    builder.branch(head)
    builder.position_at_end(head)
    piece = builder.atomic_rmw("add", counter, index_constant(1), "monotonic")
    builder.cbranch(builder.icmp_signed("<", piece, count), inside, after)
    builder.position_at_end(inside)
    yield piece
    builder.branch(head)
    builder.position_at_end(after)
