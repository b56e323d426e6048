"""Which buffer sizes to read, and which level of memory each of them speaks for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmprof.instruments.snapshot import llc_bytes
from llmprof.schema.ceilings import BandwidthCeiling, MemoryOp
from llmprof.schema.environment import Environment
from llmprof.schema.measurement import Caveat
from llmprof.units import byte_count, bytes_per_s

LLC_MULTIPLE = 4
"""A buffer below so many last-level caches is cache, not DRAM: parts of it survive a pass."""
_LARGE_BYTES = 512 << 20
_LARGE_BYTES_GPU = 1 << 30
_LLC_MULTIPLE_GPU = 8
_CLIFF = 1.25
"""A cache that holds its buffer is at least so much faster than what lies behind it; rates that are
closer cannot be told apart on a machine that others share."""


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Caches that the run's threads reach together, in bytes; 0 where the system tells of none."""

    l2_bytes: int
    llc_bytes: int

    @classmethod
    def of(cls, environment: Environment) -> "CacheSizes":
        """On a GPU its L2 is the last level; a CPU whose L2 is the last level has no LLC of its own."""
        last = llc_bytes(environment)
        if environment.gpu is not None:
            return cls(l2_bytes=last, llc_bytes=0)
        second = next((cache for cache in environment.cpu.caches if cache.level == 2), None)
        if second is None:
            return cls(l2_bytes=0, llc_bytes=last)
        reached = second.size_bytes * math.ceil(environment.threads / second.shared_by)
        has_more = any(cache.level > 2 for cache in environment.cpu.caches)
        return cls(l2_bytes=reached, llc_bytes=last if has_more else 0)

    @property
    def last_bytes(self) -> int:
        return self.llc_bytes or self.l2_bytes


def far_level(environment: Environment) -> str:
    return "DRAM" if environment.gpu is None else "HBM"


def doubtful_level(caches: CacheSizes, far: str) -> str:
    """`LLC or DRAM`: what is said of a buffer where neither can be shown."""
    return f"{_near_level(caches)} or {far}"


def nominal_level(size_bytes: int, caches: CacheSizes, far: str) -> str:
    """Level by size alone: what fits in L2, what is below four last-level caches, the rest."""
    if size_bytes <= caches.l2_bytes:
        return "L2"
    if size_bytes < LLC_MULTIPLE * caches.last_bytes:
        return _near_level(caches)
    return far


def probe_sizes(caches: CacheSizes, budget_bytes: int, *, gpu: bool) -> tuple[int, ...]:
    """Buffer sizes to read, ascending: in L2, in the LLC twice, and far beyond every cache.

    The LLC is read just above the L2 caches and at half of its own size: where a hypervisor reports
    the whole cache of a socket that others use too, the second is no faster than DRAM.
    """
    multiple, floor = (_LLC_MULTIPLE_GPU, _LARGE_BYTES_GPU) if gpu else (LLC_MULTIPLE, _LARGE_BYTES)
    largest = min(max(floor, multiple * caches.last_bytes), budget_bytes)
    sizes = [caches.l2_bytes // 2, largest]
    if caches.llc_bytes:
        sizes += [min(4 * caches.l2_bytes, caches.llc_bytes // 2), caches.llc_bytes // 2]
    return tuple(sorted({size for size in sizes if 0 < size <= largest}))


@dataclass(frozen=True, slots=True)
class Labels:
    """The level of each size, and what must be said about it."""

    levels: Mapping[int, str]
    caveats: tuple[Caveat, ...]


def label_sizes(
    rates: Mapping[int, float], caches: CacheSizes, far: str, *, contended: bool = False
) -> Labels:
    """Levels of buffers by their size and by the read rates (bytes/s) that they reached.

    A size of four last-level caches and more is DRAM, and one within L2 is L2. What lies between is
    cache only where it is read at least 25 % faster than the largest buffer: a hypervisor may report
    the cache of a whole socket, of which this process holds little. Closer rates, and rates that
    other processes disturbed, leave it open: the label is then `LLC or DRAM`.
    """
    levels = {size: nominal_level(size, caches, far) for size in rates}
    largest = max(rates)
    reached = levels[largest] == far
    between = [size for size in rates if size > caches.l2_bytes and levels[size] != far]
    as_slow = [size for size in between if rates[size] < _CLIFF * rates[largest]]
    doubtful = between if contended else as_slow
    levels.update(dict.fromkeys(doubtful, doubtful_level(caches, far)))
    caveats = [] if caches.last_bytes else [_unknown_caches(largest, far)]
    if not reached:
        caveats.append(_far_not_reached(largest, caches, far))
    if doubtful:
        caveats.append(_level_in_doubt(doubtful, rates, caches, far, contended=contended))
    return Labels(levels, tuple(caveats))


def level_of(
    size_bytes: int, environment: Environment, measured: Sequence[BandwidthCeiling] = ()
) -> str:
    """Level that a buffer of this size lives in, as it was measured once, else by its size.

    Below the smallest buffer that was shown to be in DRAM, a size is in doubt from the smallest
    buffer on that was.
    """
    far, caches = far_level(environment), CacheSizes.of(environment)
    for label in (far, doubtful_level(caches, far)):
        sizes = [c.buffer_bytes for c in measured if c.level == label and c.op is MemoryOp.READ]
        if sizes and size_bytes >= min(sizes):
            return label
    return nominal_level(size_bytes, caches, far)


def _near_level(caches: CacheSizes) -> str:
    return "LLC" if caches.llc_bytes else "L2"


def _unknown_caches(largest: int, far: str) -> Caveat:
    return Caveat(
        code="caches-unknown",
        message=f"the system tells no cache sizes: a buffer of {byte_count(largest)} is taken for {far}",
    )


def _far_not_reached(largest: int, caches: CacheSizes, far: str) -> Caveat:
    return Caveat(
        code="dram-not-reached",
        message=(
            f"no {far} figure: the largest buffer that memory allows ({byte_count(largest)}) is below "
            f"{LLC_MULTIPLE} x the last-level cache ({byte_count(caches.last_bytes)})"
        ),
        remedy="Free memory and measure again with --refresh",
    )


def _level_in_doubt(
    sizes: Sequence[int],
    rates: Mapping[int, float],
    caches: CacheSizes,
    far: str,
    *,
    contended: bool,
) -> Caveat:
    largest, shown = max(rates), min(sizes)
    reason = (
        "other processes disturbed the readings"
        if contended
        else f"{byte_count(shown)} are read at {bytes_per_s(rates[shown])} and {byte_count(largest)} at "
        f"{bytes_per_s(rates[largest])}"
    )
    return Caveat(
        code="level-in-doubt",
        message=(
            f"{reason}: how much of the last-level cache of {byte_count(caches.last_bytes)} that the "
            f"system reports is this process's own cannot be told, and reads from "
            f"{byte_count(shown)} on are labelled {doubtful_level(caches, far)}"
        ),
    )
