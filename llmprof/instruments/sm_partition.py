"""A part of a GPU's multiprocessors, through CUDA's green contexts as torch or the driver has them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llmprof.errors import CapabilityError
from llmprof.instruments.green_stream import GreenStream

GRANULE: Final = 8
"""Hopper gives multiprocessors to a green context in eights (CUDA Driver API, green contexts)."""


def half_of(multiprocessors: int) -> int:
    """About half of them, as a partition may have them."""
    return max(GRANULE, multiprocessors // 2 // GRANULE * GRANULE)


class SmPartition:
    """`num_sms` multiprocessors of `cuda:N`; caches and memory are those of the whole GPU.

    Work runs there on a stream of the partition, in the context that every kernel was loaded in.
    Source: torch.cuda.green_contexts, which has such streams since 2.12; before, the driver is asked.
    """

    def __init__(self, device: str, num_sms: int) -> None:
        """Reserve it.

        Raises:
            CapabilityError: neither torch nor the driver has green contexts, or they refuse one.
        """
        import torch

        self._cuda = torch.cuda
        self._device = device
        index = torch.device(device).index or 0
        self._context = _context_of_torch(num_sms, index)
        if self._context is not None:
            self._stream = self._context.Stream()
        else:
            self._context = GreenStream(index, num_sms)
            made: Any = torch.cuda.ExternalStream
            self._stream = made(self._context.address, device=index)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is launched inside runs there, after all that was launched before."""
        self._cuda.synchronize(self._device)
        with self._cuda.stream(self._stream):
            yield
            self._cuda.synchronize(self._device)


def _context_of_torch(num_sms: int, index: int) -> Any:
    """None where this torch has no green contexts, or none with streams."""
    try:
        from torch.cuda import green_contexts
    except ImportError:
        return None
    if not green_contexts.SUPPORTED or not hasattr(green_contexts.GreenContext, "Stream"):
        return None
    try:
        return green_contexts.GreenContext.create(num_sms=num_sms, device_id=index)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise CapabilityError(f"no partition of {num_sms} multiprocessors: {reason}") from error
