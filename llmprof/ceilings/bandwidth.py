"""Bandwidth ceilings per level of memory: read, copy, triad and write."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from llmprof.ceilings.memory_levels import CacheSizes, far_level, label_sizes, probe_sizes
from llmprof.ceilings.pool import Stream, budget_bytes, random_pool
from llmprof.ceilings.quiet import is_contended
from llmprof.ceilings.read_kernels import read_kernels
from llmprof.ceilings.read_probe import ReadProbe, read_probes
from llmprof.ceilings.timing import Call, Rates, Stopwatch, race, repeat
from llmprof.instruments.contention import ContentionMeter
from llmprof.schema.ceilings import BandwidthCeiling, MemoryOp
from llmprof.schema.environment import Environment
from llmprof.schema.measurement import Caveat

_VISITS = 2
"""Each size is visited so often: what disturbs one second must not disturb one size alone."""
_READ_SHARE = 0.6
_FEWEST_REPEATS = 3
_NEAREST_FIRST = ("L2", "LLC", "L2 or DRAM", "LLC or DRAM", "L2 or HBM", "DRAM", "HBM")


@dataclass(frozen=True, slots=True)
class _Series:
    """Repeats of one op by one kernel on a buffer of one size."""

    op: MemoryOp
    buffer_bytes: int
    kernel: str
    rates: Rates


def measure_bandwidth(
    environment: Environment, device: str, *, budget_s: float
) -> tuple[tuple[BandwidthCeiling, ...], tuple[Caveat, ...]]:
    """Ceilings, the nearest level first and in it the largest buffer, and what qualifies them.

    Read is measured at every level; the others in the LLC and beyond, where the time of a call is
    not that of its launch. Takes `budget_s`, and a second or two to fill the largest buffer.
    Method: sizes, byte counts and best-of-repeats of STREAM (McCalpin): a copy counts 2 N, a triad
    3 N, and lines that a cache fetches in order to overwrite them do not count.
    """
    caches, far = CacheSizes.of(environment), far_level(environment)
    wanted = probe_sizes(caches, budget_bytes(device), gpu=environment.gpu is not None)
    pool = random_pool(max(wanted), device, torch.float32)
    parts = [pool[: size // pool.itemsize] for size in wanted]
    buffers = {part.nbytes: part for part in parts}
    stopwatch = Stopwatch(device)

    meter = ContentionMeter(environment.threads)
    reads = _best_reads(buffers, stopwatch, device, budget_s * _READ_SHARE)
    contended = is_contended(meter.stop())
    rates = {read.buffer_bytes: read.rates.ceiling(device) for read in reads}
    labels = label_sizes(rates, caches, far, contended=contended)
    busy = [buffers[size] for size in _sizes_of_other_ops(labels.levels)]
    others = list(_other_ops(busy, stopwatch, budget_s * (1 - _READ_SHARE)))

    ceilings = [_ceiling(one, labels.levels[one.buffer_bytes], device) for one in [*reads, *others]]
    return tuple(sorted(ceilings, key=_by_distance)), labels.caveats


def _best_reads(
    buffers: Mapping[int, torch.Tensor],
    stopwatch: Stopwatch,
    device: str,
    budget_s: float,
) -> list[_Series]:
    """The best kernel at each size."""
    kernels = read_kernels(device)
    probes = {
        size: read_probes(kernels, Stream(buffer), stopwatch) for size, buffer in buffers.items()
    }
    rates: dict[int, dict[str, tuple[float, ...]]] = {size: {} for size in buffers}
    share_s = budget_s / (_VISITS * len(buffers))
    for _ in range(_VISITS):
        for size, rivals in probes.items():
            raced = _visit(rivals, stopwatch, share_s)
            for name, more in raced.items():
                rates[size][name] = (*rates[size].get(name, ()), *more.per_s)
    return [_best(size, by_kernel, device) for size, by_kernel in rates.items()]


def _visit(
    rivals: Mapping[str, ReadProbe], stopwatch: Stopwatch, budget_s: float
) -> dict[str, Rates]:
    first = next(iter(rivals.values()))
    first()  # what other buffers have thrown out of the caches comes back
    rates = race(
        stopwatch, rivals, first.bytes_per_call, budget_s=budget_s, at_least=_FEWEST_REPEATS
    )
    fastest = max(raced.best for raced in rates.values())
    for probe in rivals.values():
        probe.expect(fastest)
    return rates


def _best(size: int, by_kernel: Mapping[str, tuple[float, ...]], device: str) -> _Series:
    kernel = max(by_kernel, key=lambda name: Rates(by_kernel[name]).ceiling(device))
    return _Series(MemoryOp.READ, size, kernel, Rates(by_kernel[kernel]))


def _sizes_of_other_ops(levels: Mapping[int, str]) -> list[int]:
    """The smallest buffer beyond L2, where caches are behind it, and the largest buffer."""
    return sorted({*sorted(size for size in levels if levels[size] != "L2")[:1], max(levels)})


def _other_ops(
    buffers: list[torch.Tensor], stopwatch: Stopwatch, budget_s: float
) -> Iterator[_Series]:
    share_s = budget_s / (3 * len(buffers))
    for buffer in buffers:
        for op, kernel, call in _writing_calls(buffer):
            call()
            rates = repeat(
                stopwatch, call, buffer.nbytes, budget_s=share_s, at_least=_FEWEST_REPEATS
            )
            yield _Series(op, buffer.nbytes, kernel, rates)


def _writing_calls(buffer: torch.Tensor) -> Iterator[tuple[MemoryOp, str, Call]]:
    """Each call touches the whole buffer once: as source and target, or as three operands."""
    source, target = buffer.tensor_split(2)
    a, b, c = buffer[: buffer.numel() // 3 * 3].chunk(3)
    yield MemoryOp.COPY, "torch.Tensor.copy_", lambda: target.copy_(source)
    yield MemoryOp.TRIAD, "torch.add(alpha, out)", lambda: torch.add(a, b, alpha=0.5, out=c)
    yield MemoryOp.WRITE, "torch.Tensor.fill_", lambda: buffer.fill_(1.0)


def _ceiling(series: _Series, level: str, device: str) -> BandwidthCeiling:
    return BandwidthCeiling(
        op=series.op,
        level=level,
        buffer_bytes=series.buffer_bytes,
        bytes_per_s=series.rates.ceiling(device),
        median_bytes_per_s=series.rates.median,
        spread=series.rates.spread,
        kernel=series.kernel,
    )


def _by_distance(ceiling: BandwidthCeiling) -> tuple[int, int, int]:
    op = list(MemoryOp).index(ceiling.op)
    return _NEAREST_FIRST.index(ceiling.level), -ceiling.buffer_bytes, op
