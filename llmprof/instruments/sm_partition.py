"""A part of a GPU's multiprocessors, through CUDA's green contexts as torch or the driver has them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llmprof.instruments.green_stream import GreenStream

GRANULE: Final = 8
"""Hopper gives multiprocessors to a green context in eights (CUDA Driver API, green contexts)."""


def half_of(multiprocessors: int) -> int:
    """About half of them, as a partition may have them."""
    return max(GRANULE, multiprocessors // 2 // GRANULE * GRANULE)


class SmPartition:
    """`num_sms` multiprocessors of `cuda:N`; caches and memory are those of the whole GPU.

    Work runs there on a stream of the partition, in the context that every kernel was loaded in.
    Source: torch.cuda.green_contexts; where it has no such streams, or refuses, the driver is asked.
    """

    def __init__(self, device: str, num_sms: int) -> None:
        """Reserve it.

        Raises:
            CapabilityError: neither torch nor the driver has green contexts, or both refuse one.
        """
        import torch

        self._cuda = torch.cuda
        self._device = device
        index = torch.device(device).index or 0
        of_torch = _context_of_torch(num_sms, index)
        if of_torch is not None:
            self._context, self._stream = of_torch
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


def _context_of_torch(num_sms: int, index: int) -> tuple[Any, Any] | None:
    """With its stream; None where this torch has no such streams, or they do not work here.

    What they need differs by version (a build for CUDA, a newer driver, the package cuda-bindings), and
    so does how they say so: they are tried.
    """
    try:
        from torch.cuda.green_contexts import GreenContext

        if not hasattr(GreenContext, "Stream"):
            return None
        context: Any = GreenContext.create(num_sms=num_sms, device_id=index)
        return context, context.Stream()
    except (ImportError, RuntimeError):
        return None
