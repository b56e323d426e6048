"""Memory to work on: random numbers, as many as asked for or as the device allows."""

import torch

from llmprof.engine.kernels.memory import huge_empty
from llmprof.errors import CapabilityError
from llmprof.instruments.host_memory import host_memory

MEMORY_SHARE = 0.25
"""At most this share of what is free now: a measurement must not push the machine into swapping."""
_MIN_BYTES = 1 << 20
_TILE_NUMEL = (1 << 20) - 3
"""No power of two, so that the rows of a matrix differ."""
_ALIGNMENT_BYTES = 4096
_SEED = 20240229


def budget_bytes(device: str) -> int:
    """Bytes that pools may take on `device` now."""
    if device == "cpu":
        return int(host_memory().available_bytes * MEMORY_SHARE)
    free, _total = torch.cuda.mem_get_info(device)
    return int(free * MEMORY_SHARE)


def random_pool(wanted_bytes: int, device: str, dtype: torch.dtype) -> torch.Tensor:
    """1-D tensor of random normal numbers, 1 MiB at least; on a CPU in huge pages where it can be.

    Smaller than wanted where a quarter of the free memory is less: its size says so. Raises
    CapabilityError where not even 1 MiB can be had.
    """
    budget = budget_bytes(device)
    if budget < _MIN_BYTES:
        raise CapabilityError(
            f"less than {4 * _MIN_BYTES} bytes are free on {device}: too few to measure ceilings",
            remedy="Free memory on the device and try again",
        )
    size = max(_MIN_BYTES, min(wanted_bytes, budget) // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES)
    shape = (size // dtype.itemsize,)
    pool = (
        huge_empty(shape, dtype=dtype)
        if device == "cpu"
        else torch.empty(shape, dtype=dtype, device=device)
    )
    _fill_randomly(pool)
    return pool


class Stream:
    """Walks on through a pool, round and round, whoever asks for the next bytes.

    What was taken last is taken again only when the whole pool has passed by, so that every byte is
    as cold as a stream of the pool's size leaves it, although no single call reads all of it.
    """

    def __init__(self, pool: torch.Tensor) -> None:
        """`pool` is 1-D and contiguous."""
        self.pool = pool
        self._next = 0

    def take(self, numel: int) -> torch.Tensor:
        """The next `numel` elements, at most the whole pool; starts again where too few are left."""
        numel = min(numel, self.pool.numel())
        start = self._next if self._next + numel <= self.pool.numel() else 0
        step = _ALIGNMENT_BYTES // self.pool.itemsize
        self._next = -(-(start + numel) // step) * step
        return self.pool[start : start + numel]


def random_tensor(shape: tuple[int, ...], device: str, dtype: torch.dtype) -> torch.Tensor:
    """Random normal numbers, or integers over the whole range of int8."""
    tensor = torch.empty(shape, dtype=dtype, device=device)
    _fill_randomly(tensor)
    return tensor


def _fill_randomly(tensor: torch.Tensor) -> None:
    """Repeat a tile of random numbers: no kernel here gains from that, and it is many times faster."""
    flat = tensor.view(-1)
    filled = min(flat.numel(), _TILE_NUMEL)
    flat[:filled] = _random_tile(filled, tensor.dtype).to(tensor.device)
    while filled < flat.numel():
        more = flat[filled : 2 * filled]
        more.copy_(flat[: more.numel()])
        filled += more.numel()


def _random_tile(numel: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    if dtype == torch.int8:
        return torch.randint(-128, 128, (numel,), generator=generator, dtype=dtype)
    return torch.randn(numel, generator=generator).to(dtype)
