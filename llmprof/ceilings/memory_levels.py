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
_FLAT = 1.15
"""Rates within this ratio belong to one plateau; caches are far from that close to DRAM."""
_CLIFF = 1.25
"""A cache that holds its buffer is at least so much faster than what lies behind it."""


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


def nominal_level(size_bytes: int, caches: CacheSizes, far: str) -> str:
    """Level by size alone: what fits in L2, what is below four last-level caches, the rest."""
    if size_bytes <= caches.l2_bytes:
        return "L2"
    if size_bytes < LLC_MULTIPLE * caches.last_bytes:
        return "LLC" if caches.llc_bytes else "L2"
    return far


def probe_sizes(caches: CacheSizes, budget_bytes: int, *, gpu: bool) -> tuple[int, ...]:
    """Buffer sizes to read, ascending: in L2, in the LLC twice, and far beyond every cache.

    The LLC is read just above the L2 caches and at half of its own size: where a hypervisor reports
    the whole cache of a socket that others use too, the second is no faster than DRAM. A largest
    buffer that the memory keeps below four caches gets a neighbour of half its size, so that a
    plateau can be told from a cache.
    """
    multiple, floor = (_LLC_MULTIPLE_GPU, _LARGE_BYTES_GPU) if gpu else (LLC_MULTIPLE, _LARGE_BYTES)
    largest = min(max(floor, multiple * caches.last_bytes), budget_bytes)
    sizes = [caches.l2_bytes // 2, largest]
    if caches.llc_bytes:
        sizes += [min(4 * caches.l2_bytes, caches.llc_bytes // 2), caches.llc_bytes // 2]
    if largest < LLC_MULTIPLE * caches.last_bytes:
        sizes.append(largest // 2)
    return tuple(sorted({size for size in sizes if 0 < size <= largest}))


@dataclass(frozen=True, slots=True)
class Labels:
    """The level of each size, and what must be said about it."""

    levels: Mapping[int, str]
    caveats: tuple[Caveat, ...]


def label_sizes(rates: Mapping[int, float], caches: CacheSizes, far: str) -> Labels:
    """Levels of buffers by their size and by the read rates (bytes/s) that they reached.

    Size decides, with one exception that needs evidence. The largest sizes whose rates agree within
    15 % are one plateau. It is DRAM where one of its members is as large as four last-level caches,
    or where two of its members lie below a cliff of 25 % that a smaller buffer beyond L2 stands on: then the
    cache that the system reports is not ours to fill, and the plateau's smaller members are DRAM
    too. Everything else below four caches is cache, whatever it is called elsewhere.
    """
    plateau = _plateau(rates)
    levels = {size: nominal_level(size, caches, far) for size in rates}
    largest = max(rates)
    reached = levels[largest] == far or _has_cliff(rates, plateau, caches)
    shown = [size for size in plateau if levels[size] != far and size > caches.l2_bytes]
    if reached:
        levels.update(dict.fromkeys(shown, far))
    caveats = [] if caches.last_bytes else [_unknown_caches(largest, far)]
    if not reached:
        caveats.append(_far_not_reached(largest, caches, far))
    elif shown:
        caveats.append(_shared_cache(shown[0], rates, caches, far))
    return Labels(levels, tuple(caveats))


def level_of(
    size_bytes: int, environment: Environment, measured: Sequence[BandwidthCeiling] = ()
) -> str:
    """Level that a buffer of this size lives in, as it was measured once, else by its size."""
    far = far_level(environment)
    seen_far = [c.buffer_bytes for c in measured if c.level == far and c.op is MemoryOp.READ]
    if seen_far and size_bytes >= min(seen_far):
        return far
    return nominal_level(size_bytes, CacheSizes.of(environment), far)


def _plateau(rates: Mapping[int, float]) -> list[int]:
    """The largest sizes, ascending, whose rates agree with the largest one's."""
    descending = sorted(rates, reverse=True)
    members: list[int] = []
    for size in descending:
        if not 1 / _FLAT <= rates[size] / rates[descending[0]] <= _FLAT:
            break
        members.insert(0, size)
    return members


def _has_cliff(rates: Mapping[int, float], plateau: Sequence[int], caches: CacheSizes) -> bool:
    """The step from L2 to the next level is no sign of DRAM, so only buffers beyond L2 can show it."""
    fastest = max(rates[size] for size in plateau)
    return len(plateau) > 1 and any(
        rates[size] >= _CLIFF * fastest for size in rates if size > caches.l2_bytes
    )


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


def _shared_cache(size: int, rates: Mapping[int, float], caches: CacheSizes, far: str) -> Caveat:
    largest = max(rates)
    return Caveat(
        code="shared-cache",
        message=(
            f"{byte_count(size)} are read at {bytes_per_s(rates[size])}, as fast as "
            f"{byte_count(largest)} ({bytes_per_s(rates[largest])}): of the last-level cache of "
            f"{byte_count(caches.last_bytes)} that the system reports, this process holds little, and "
            f"reads from {byte_count(size)} on are labelled {far}"
        ),
    )
