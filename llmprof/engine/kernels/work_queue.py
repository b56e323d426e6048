"""Pieces of work that threads take one by one, as LLVM IR.

Equal shares end when the slowest thread does, which on a machine that others use is late: a thread
that is kept waiting for its core takes fewer pieces instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.vector_ir import I64, index_constant

MOST_QUEUES: Final = 64
_COUNTER_BYTES: Final = 64
"""A cache line for each."""
QUEUE_BYTES: Final = MOST_QUEUES * _COUNTER_BYTES
"""Of scratch memory, at its start."""


def clear_queues(body: KernelBody) -> None:
    """Before the threads start."""
    with body.code.loop(index_constant(0), index_constant(MOST_QUEUES), 1) as queue:
        body.builder.store(index_constant(0), _counter(body, queue.index))


@contextmanager
def each_piece(body: KernelBody, count: Any, queue: Any = None) -> Iterator[Any]:
    """Build the body of `while one of the pieces 0 ... count - 1 of a queue is left: take it`."""
    builder = body.builder
    counter = _counter(body, index_constant(0) if queue is None else queue)
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


def _counter(body: KernelBody, queue: Any) -> Any:
    place = body.builder.mul(queue, index_constant(_COUNTER_BYTES // 8))
    return body.builder.gep(body.pointer(body.scratch_slot, I64), [place])
