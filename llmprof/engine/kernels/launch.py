"""How a kernel of ours is called: seen by torch where something looks, and on how many threads.

A call through torch's dispatcher costs about 10 us in Python, more than most of these kernels take.
So each one is registered as a custom operator, which a counting pass and `torch.compile` see, and
is called directly where neither is at work.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import torch

from llmprof.engine.dtypes import TORCH_DTYPES
from llmprof.engine.kernels.native import NativeKernel, cpu_features

_SHARED_FROM_BYTES: Final = 128 << 10
"""Below, waking the other threads costs more than they save (about 5 us at 25 GB/s)."""

_HALF_PRECISION: Final = {"f16c", "neon"}

_DTYPE_NAMES: Final = {dtype: name for name, dtype in TORCH_DTYPES.items()}

_P = ParamSpec("_P")
_R = TypeVar("_R")


def observable(
    operator: str, *, mutates: tuple[str, ...] = (), fake: Callable[..., Any] | None = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Register a function as `torch.ops.llmprof.<operator>`, and go that way only while watched.

    Args:
        operator: its name in torch.
        mutates: the arguments that it writes to.
        fake: the shape of what it returns, given the same arguments; none if it returns nothing.
    """

    def register(function: Callable[_P, _R]) -> Callable[_P, _R]:
        registered = torch.library.custom_op(f"llmprof::{operator}", function, mutates_args=mutates)
        registered.register_fake(fake or _nothing)
        dispatch_modes = torch._C._len_torch_dispatch_stack
        name = f"llmprof.{operator}"

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if torch.compiler.is_compiling():
                return registered(*args, **kwargs)  # type: ignore[no-any-return]
            if _observers and not _recorders:
                observer = _observers[-1]
                observer.op_begin(name)
                try:
                    return function(*args, **kwargs)
                finally:
                    observer.op_end()
            if dispatch_modes():
                result: _R = registered(*args, **kwargs)
                return result
            return function(*args, **kwargs)

        return call

    return register


class LaunchRecorder(Protocol):
    """Told about every launch, in order, before it is made."""

    def launched(self, kernel: NativeKernel, arguments: tuple[int, ...], *, shared: bool) -> None:
        """`shared`: on all threads."""


class CallObserver(Protocol):
    """Told before and after each call of an operator of ours, which goes past torch's dispatcher."""

    def op_begin(self, name: str) -> None: ...
    def op_end(self) -> None: ...


_recorders: Final[list[LaunchRecorder]] = []
_observers: Final[list[CallObserver]] = []


@contextmanager
def observed_calls(observer: CallObserver) -> Iterator[None]:
    """Have every call of an operator of ours told to `observer`: it is timed as it runs unwatched."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.pop()


@contextmanager
def recorded_launches(recorder: LaunchRecorder) -> Iterator[None]:
    """Have every launch of a kernel told to `recorder`."""
    _recorders.append(recorder)
    try:
        yield
    finally:
        _recorders.pop()


def is_recorded() -> bool:
    """Whether launches are being recorded, to be repeated without Python."""
    return bool(_recorders)


def launch(kernel: NativeKernel, num_bytes: int, *arguments: int) -> None:
    """On all threads if the bytes that it touches are worth it.

    Addresses in `arguments` are those of the operator's arguments and results: a recording keeps
    these tensors, and knows of no others.
    """
    shared = num_bytes >= _SHARED_FROM_BYTES
    if _recorders:
        _recorders[-1].launched(kernel, arguments, shared=shared)
    if shared:
        kernel(*arguments)
    else:
        kernel.alone(*arguments)


def runs_native(where: torch.Tensor | str) -> bool:
    """Whether kernels of ours run on a tensor, or on `cpu` or `cuda:N`.

    Not in a step that torch.compile traces: it fuses what lies between products by itself.
    """
    if torch.compiler.is_compiling():
        return False
    on_cpu = where.is_cpu if isinstance(where, torch.Tensor) else where == "cpu"
    return on_cpu and _half_precision()


@functools.cache
def _half_precision() -> bool:
    """Whether the CPU converts fp16 itself (F16C on x86): LLVM would call a library that is not there."""
    return not cpu_features().isdisjoint(_HALF_PRECISION)


def dtype_name(tensor: torch.Tensor) -> str:
    """fp32, bf16 or fp16."""
    return _DTYPE_NAMES[tensor.dtype]


def _nothing(*_: object) -> None:
    pass
