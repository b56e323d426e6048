"""A part of a GPU's multiprocessors, through CUDA's green contexts as torch has them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llmprof.errors import CapabilityError

GRANULE: Final = 8
"""Hopper gives multiprocessors to a green context in eights (CUDA Driver API, green contexts)."""


def half_of(multiprocessors: int) -> int:
    """About half of them, as a partition may have them."""
    return max(GRANULE, multiprocessors // 2 // GRANULE * GRANULE)


class SmPartition:
    """`num_sms` multiprocessors of `cuda:N`; caches and memory are those of the whole GPU.

    Events must be made inside: on some versions of torch the partition is a context of its own.
    Source: torch.cuda.green_contexts, which since 2.12 has streams of the partition, and before
    made it the current context.
    """

    def __init__(self, device: str, num_sms: int) -> None:
        """Reserve it.

        Raises:
            CapabilityError: this torch has no green contexts, or the driver refuses one.
        """
        import torch

        self._cuda = torch.cuda
        self._device = device
        self._context = _created(num_sms, torch.device(device).index or 0)
        self._stream = self._context.Stream() if hasattr(self._context, "Stream") else None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is launched inside runs there, after all that was launched before."""
        self._cuda.synchronize(self._device)
        if self._stream is not None:
            with self._cuda.stream(self._stream):
                yield
                self._cuda.synchronize(self._device)
            return
        self._context.set_context()
        try:
            yield
            self._cuda.synchronize(self._device)
        finally:
            self._context.pop_context()


def _created(num_sms: int, index: int) -> Any:
    try:
        from torch.cuda import green_contexts
    except ImportError as error:
        raise CapabilityError("this version of torch has no green contexts (2.10 has)") from error
    if not green_contexts.SUPPORTED:
        raise CapabilityError("this build of torch has no green contexts")
    try:
        return green_contexts.GreenContext.create(num_sms=num_sms, device_id=index)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise CapabilityError(f"no partition of {num_sms} multiprocessors: {reason}") from error
