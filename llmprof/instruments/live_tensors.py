"""Bytes of the tensors that are alive at once: what memory a run really needs, apart from libraries."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from llmprof.errors import MeasurementFailedError
from llmprof.units import byte_count


class OverBudgetError(MeasurementFailedError):
    """A tensor was allocated that the budget has no room for."""


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operators return for as long as anything holds them.

    Use it around the work, and name what existed before by `leave_out`. A storage counts once however
    many views it has, with the bytes of the tensor that shows it first: memory that was mapped for a
    tensor may have room around it, which nobody touches. Scratch memory that an operator allocates and frees inside is not seen: that of a
    library kernel is the library's. Never time anything under it.
    """

    supports_higher_order_operators = True

    def __init__(self, *, budget_bytes: int | None = None) -> None:
        """With a budget, the allocation that passes it fails."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._budget = budget_bytes
        self._held: dict[int, int] = {}
        self.live_bytes = 0
        self.peak_bytes = 0

    def leave_out(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do not count what these lie in, whatever views of it are made."""
        for tensor in tensors:
            self._held[tensor.untyped_storage()._cdata] = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator and count what it returns.

        Raises:
            OverBudgetError: that does not fit.
        """
        out = func(*args, **(kwargs or {}))
        for tensor in _tensors(out):
            self._count(tensor)
        return out

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, min(storage.nbytes(), tensor.nbytes)
        if key in self._held or not size:
            return
        self._held[key] = size
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._release, key).atexit = False
        if self._budget is not None and self.live_bytes > self._budget:
            raise OverBudgetError(
                f"{byte_count(self.live_bytes)} of tensors are more than the budget of "
                f"{byte_count(self._budget)}"
            )

    def _release(self, key: int) -> None:
        self.live_bytes -= self._held.pop(key, 0)


def _tensors(out: Any) -> Iterator[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        yield out
    elif isinstance(out, list | tuple):
        for one in out:
            yield from _tensors(one)
