"""Functions of LLVM IR, compiled for this machine and run on the threads that torch itself uses.

Two pools of threads that spin for work take the cores from each other (torch's OpenMP and one of
ours), so kernels run on torch's: `GOMP_parallel` is looked up in the OpenMP runtime that
libtorch_cpu is linked against. It costs about 2 us with a warm pool, and the count of threads is
torch's (`torch.set_num_threads`). Where torch has no such runtime (macOS, Windows), threads of
Python take its place, at tens of microseconds per call.

Compilation takes 10 to 40 ms per kernel, so there is no cache on disk that could become stale.
"""

import ctypes
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import torch
from llvmlite import ir

from llmprof.engine.kernels.vector_ir import I8, I32, I64, VectorCode, index_constant

_SCRATCH_ALIGNMENT: Final = 64
_ARGUMENTS: Final = I64.as_pointer()
_ENTRY: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_WORK_TYPE: Final = ir.FunctionType(ir.VoidType(), [_ARGUMENTS, I64, I64])
_CALL_TYPE: Final = ir.FunctionType(ir.VoidType(), [_ARGUMENTS])


@dataclass(frozen=True, slots=True)
class KernelBody:
    """What the author of a kernel works with: its arguments, its share and a vector builder."""

    builder: Any
    code: VectorCode
    arguments: Any
    thread: Any
    """i64: 0 ... threads - 1."""
    threads: Any
    scratch_slot: int
    """The argument that holds the address of the kernel's scratch memory."""

    def integer(self, slot: int) -> Any:
        """The i64 argument in this slot."""
        return self.builder.load(self.builder.gep(self.arguments, [index_constant(slot)]))

    def pointer(self, slot: int, element: Any) -> Any:
        """The argument in this slot, an address, as a pointer to such elements."""
        return self.builder.inttoptr(self.integer(slot), element.as_pointer())

    def share(self, count: Any) -> tuple[Any, Any]:
        """This thread's part [begin, end) of `count` equal pieces of work."""
        builder = self.builder
        begin = builder.sdiv(builder.mul(count, self.thread), self.threads)
        following = builder.add(self.thread, index_constant(1))
        return begin, builder.sdiv(builder.mul(count, following), self.threads)


Build = Callable[[KernelBody], None]
"""Emits the work of one thread, without the final return."""


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """A compiled kernel; call it with its arguments: integers, and addresses as `data_ptr()` has them.

    The memory behind the addresses must stay alive during the call; nothing else is checked.
    """

    _call: Callable[[Any], None]
    _alone: Callable[[Any], None]
    _slots: Any
    _engine: Any
    """Owns the machine code."""

    def __call__(self, *arguments: int) -> None:
        """Share the work among the threads of torch's pool."""
        self._call(self._slots(*arguments))

    def alone(self, *arguments: int) -> None:
        """Do all of the work on the calling thread: for less than it costs to wake the others."""
        self._alone(self._slots(*arguments))

    def recorded(self, *arguments: int, shared: bool) -> tuple[int, Any] | None:
        """What another native function needs to make this call, as `void entry(int64_t *arguments)`.

        Returns:
            The entry's address and the arguments in memory, which must be kept; None where the work
            is shared among threads of Python.
        """
        entry = self._call if shared else self._alone
        address = ctypes.cast(entry, ctypes.c_void_p).value if isinstance(entry, _ENTRY) else None
        return None if address is None else (address, self._slots(*arguments))


def compile_kernel(
    name: str,
    num_arguments: int,
    build: Build,
    *,
    prepare: Build | None = None,
    scratch_bytes: int = 0,
) -> NativeKernel:
    """Compile what `build` emits, to be run by every thread of torch's pool at once.

    `prepare` is run by the caller alone before the threads start, to write what all of them read:
    usually into scratch memory, which lives on the caller's stack during the call.
    """
    runtime = openmp_runtime()
    module = ir.Module(name)
    _function(module, "work", build, num_arguments)
    if prepare is not None:
        _function(module, "prepare", prepare, num_arguments)
    _entry(module, "alone", _run_alone, num_arguments, scratch_bytes)
    if runtime is not None:
        task = _task(module, runtime)
        fork = functools.partial(_fork, task=task, runtime=runtime)
        _entry(module, "call", fork, num_arguments, scratch_bytes)
    engine = _machine_code(module)
    alone = _native_call(engine, "alone")
    if runtime is not None:
        call = _native_call(engine, "call")
    else:
        call = _python_threads_call(engine, num_arguments, scratch_bytes)
    return NativeKernel(call, alone, ctypes.c_int64 * (num_arguments + 1), engine)


@dataclass(frozen=True, slots=True)
class OpenMp:
    """Addresses of the runtime's functions."""

    parallel: int
    thread_num: int
    num_threads: int


@functools.cache
def openmp_runtime() -> OpenMp | None:
    """The runtime whose threads torch uses; None where it does not speak libgomp's interface."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        handle = ctypes.CDLL(str(library))
        symbols = [
            getattr(handle, name)
            for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        ]
    except (OSError, AttributeError):
        return None
    addresses = [ctypes.cast(symbol, ctypes.c_void_p).value for symbol in symbols]
    parallel, thread_num, num_threads = (address or 0 for address in addresses)
    return OpenMp(parallel, thread_num, num_threads)


@functools.cache
def cpu_features() -> frozenset[str]:
    """Instruction sets of this machine, as LLVM spells them: avx2, avx512f, avx512bf16, neon, ..."""
    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)


def _function(module: Any, name: str, build: Build, scratch_slot: int) -> None:
    function = ir.Function(module, _WORK_TYPE, name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    arguments, thread, threads = function.args
    build(KernelBody(builder, VectorCode(builder), arguments, thread, threads, scratch_slot))
    builder.ret_void()


def _entry(
    module: Any,
    name: str,
    run: Callable[[Any, Any, Any], None],
    scratch_slot: int,
    scratch_bytes: int,
) -> None:
    """`name(arguments)`: scratch memory, preparation, then the work as `run` emits it."""
    entry = ir.Function(module, _CALL_TYPE, name)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    (arguments,) = entry.args
    if scratch_bytes:
        scratch = builder.alloca(I8, size=index_constant(scratch_bytes))
        scratch.align = _SCRATCH_ALIGNMENT
        slot = builder.gep(arguments, [index_constant(scratch_slot)])
        builder.store(builder.ptrtoint(scratch, I64), slot)
    if "prepare" in module.globals:
        builder.call(module.globals["prepare"], [arguments, index_constant(0), index_constant(1)])
    run(builder, module, arguments)
    builder.ret_void()


def _run_alone(builder: Any, module: Any, arguments: Any) -> None:
    builder.call(module.globals["work"], [arguments, index_constant(0), index_constant(1)])


def _task(module: Any, runtime: OpenMp) -> Any:
    """What each thread of the pool runs: the work, with its number."""
    task = ir.Function(module, _CALL_TYPE, "task")
    builder = ir.IRBuilder(task.append_basic_block("entry"))
    counter = ir.FunctionType(I32, [])
    thread, threads = (
        builder.sext(builder.call(_known(builder, address, counter), []), I64)
        for address in (runtime.thread_num, runtime.num_threads)
    )
    builder.call(module.globals["work"], [task.args[0], thread, threads])
    builder.ret_void()
    return task


def _fork(builder: Any, _module: Any, arguments: Any, *, task: Any, runtime: OpenMp) -> None:
    """GOMP_parallel(function, data, threads, flags): zero threads are as many as torch has set."""
    parallel = ir.FunctionType(ir.VoidType(), [task.type, _ARGUMENTS, I32, I32])
    zero = ir.Constant(I32, 0)
    function = _known(builder, runtime.parallel, parallel)
    builder.call(function, [task, arguments, zero, zero])


def _known(builder: Any, address: int, function: Any) -> Any:
    return builder.inttoptr(index_constant(address), function.as_pointer())


def _machine_code(module: Any) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine


def _native_call(engine: Any, name: str) -> Callable[[Any], None]:
    return _ENTRY(engine.get_function_address(name))


def _python_threads_call(
    engine: Any, scratch_slot: int, scratch_bytes: int
) -> Callable[[Any], None]:
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    work = prototype(engine.get_function_address("work"))
    address = engine.get_function_address("prepare")
    prepare = prototype(address) if address else None

    def call(arguments: Any) -> None:
        scratch = ctypes.create_string_buffer(scratch_bytes + _SCRATCH_ALIGNMENT)
        start = ctypes.addressof(scratch)
        arguments[scratch_slot] = start + -start % _SCRATCH_ALIGNMENT
        if prepare is not None:
            prepare(arguments, 0, 1)
        threads = torch.get_num_threads()
        shares = [_pool().submit(work, arguments, thread, threads) for thread in range(1, threads)]
        work(arguments, 0, threads)
        for share in shares:
            share.result()

    return call


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), "llmprof-kernel")
