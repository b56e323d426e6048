"""Kernels as machine code: arguments, scratch memory, threads."""

from typing import Any

import pytest
import torch

from llmprof.engine.kernels import native
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import I64, index_constant


def shares(num_pieces: int) -> NativeKernel:
    """Every piece of work writes the number of the thread that did it, and how many there are."""

    def build(body: KernelBody) -> None:
        builder = body.builder
        out = body.pointer(0, I64)
        with body.code.loop(*body.share(index_constant(num_pieces)), 1) as loop:
            at = builder.mul(loop.index, index_constant(2))
            builder.store(body.thread, builder.gep(out, [at]))
            after = builder.add(at, index_constant(1))
            builder.store(body.threads, builder.gep(out, [after]))

    return compile_kernel("shares", 1, build)


def run(kernel: NativeKernel, num_pieces: int, *, alone: bool = False) -> list[tuple[int, int]]:
    out = torch.full((num_pieces, 2), -1, dtype=torch.int64)
    (kernel.alone if alone else kernel)(out.data_ptr())
    return [(int(thread), int(threads)) for thread, threads in out]


@pytest.fixture
def three_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_pieces_are_shared_among_as_many_threads_as_torch_has() -> None:
    done = run(shares(10), 10)
    assert {threads for _, threads in done} == {3}
    assert [thread for thread, _ in done] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.usefixtures("three_threads")
def test_alone_is_one_thread() -> None:
    assert set(run(shares(10), 10, alone=True)) == {(0, 1)}


@pytest.mark.usefixtures("three_threads")
def test_threads_of_python_where_torch_has_no_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "openmp_runtime", lambda: None)
    done = run(shares(7), 7)
    assert [thread for thread, _ in done] == [0, 0, 1, 1, 2, 2, 2]
    assert {threads for _, threads in done} == {3}


@pytest.mark.parametrize("has_openmp", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_what_is_prepared_in_scratch_memory_is_there_for_the_work(
    has_openmp: bool, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_openmp:
        monkeypatch.setattr(native, "openmp_runtime", lambda: None)

    def prepare(body: KernelBody) -> None:
        scratch = body.pointer(body.scratch_slot, I64)
        doubled = body.builder.mul(body.integer(1), index_constant(2))
        body.builder.store(doubled, body.builder.gep(scratch, [index_constant(3)]))

    def build(body: KernelBody) -> None:
        scratch = body.pointer(body.scratch_slot, I64)
        number = body.builder.load(body.builder.gep(scratch, [index_constant(3)]))
        body.builder.store(number, body.pointer(0, I64))

    kernel = compile_kernel("prepared", 2, build, prepare=prepare, scratch_bytes=32)
    out = torch.zeros(1, dtype=torch.int64)
    (kernel.alone if alone else kernel)(out.data_ptr(), 21)
    assert int(out) == 42
