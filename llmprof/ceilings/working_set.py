"""How much memory the parts of a decode step are streamed through, and which level that is."""

from typing import Final

from llmprof.ceilings.memory_levels import CacheSizes, level_of
from llmprof.ceilings.pool import budget_bytes
from llmprof.schema.ceilings import BandwidthCeiling
from llmprof.schema.environment import Environment

_LARGEST_BYTES: Final = 512 << 20
_LARGEST_BYTES_GPU: Final = 1 << 30
_LLC_MULTIPLE: Final = 4
_SHARE: Final = 2
"""Of what may be taken, so that scales and copies find room beside it."""


def working_set_bytes(environment: Environment, device: str) -> int:
    """Four last-level caches or 512 MiB (on a GPU 1 GiB), whichever is less, if memory allows it.

    A hypervisor may report the cache of a whole socket: no set of four of those is made for each of
    many formats. What the set is is said by `level_of_set`, from what was measured.
    """
    largest = _LARGEST_BYTES if environment.gpu is None else _LARGEST_BYTES_GPU
    cached = _LLC_MULTIPLE * CacheSizes.of(environment).last_bytes or largest
    return max(1 << 20, min(max(cached, largest // 2), largest, budget_bytes(device) // _SHARE))


def level_of_set(
    num_bytes: int, environment: Environment, bandwidth: tuple[BandwidthCeiling, ...]
) -> str:
    """As `BandwidthCeiling.level`: `DRAM`, `HBM`, or `LLC or DRAM` where it cannot be told."""
    return level_of(num_bytes, environment, bandwidth)
