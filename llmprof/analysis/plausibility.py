"""Whether what was measured can be true of the device that the datasheet describes."""

from collections.abc import Iterator, Sequence
from typing import Final

from llmprof import units
from llmprof.schema.ceilings import BandwidthCeiling, Ceilings, MemoryOp
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.measurement import Caveat
from llmprof.schema.report import RooflinePoint

MOST_OF_PEAK: Final = 1.03
"""Clocks may stand a little above the stated boost."""
LEAST_OF_BANDWIDTH: Final = 0.65
LEAST_OF_COMPUTE: Final = 0.45
"""Below these shares of a GPU's peaks no healthy one stays: power cap, another device, a shared one.
Cores of a CPU cannot fill its socket's bandwidth unless all of them read, so there is no least."""
_FAR_LEVELS: Final = ("DRAM", "HBM")
_LIMITED_POWER: Final = 0.95


def plausibility_caveats(
    ceilings: Ceilings, points: Sequence[RooflinePoint], datasheet: Datasheet | None
) -> tuple[Caveat, ...]:
    """Ceilings and points above the stated peak, ceilings far below it, a lowered power limit."""
    if datasheet is None:
        return ()
    return (
        *_bandwidth(ceilings, datasheet),
        *_compute(ceilings, datasheet),
        *_points(points, datasheet),
        *_power(ceilings, datasheet),
    )


def _bandwidth(ceilings: Ceilings, datasheet: Datasheet) -> Iterator[Caveat]:
    peak = datasheet.memory_bytes_per_s
    reads = [one.bytes_per_s for one in ceilings.bandwidth if _is_far_read(one)]
    if peak and reads:
        text = units.bytes_per_s(max(reads)), units.bytes_per_s(peak)
        least = LEAST_OF_BANDWIDTH if ceilings.environment.gpu else 0.0
        yield from _judge("memory read", max(reads) / peak, text, datasheet, least)


def _is_far_read(ceiling: BandwidthCeiling) -> bool:
    return ceiling.op is MemoryOp.READ and ceiling.level in _FAR_LEVELS


def _compute(ceilings: Ceilings, datasheet: Datasheet) -> Iterator[Caveat]:
    for dtype, peak in datasheet.flops_per_s.items():
        rates = [one.flops_per_s for one in ceilings.compute if one.dtype == dtype]
        if rates:
            text = units.flops_per_s(max(rates)), units.flops_per_s(peak)
            least = LEAST_OF_COMPUTE if ceilings.environment.gpu else 0.0
            yield from _judge(f"{dtype} matmul", max(rates) / peak, text, datasheet, least)


def _judge(
    what: str, share: float, text: tuple[str, str], datasheet: Datasheet, least: float
) -> Iterator[Caveat]:
    measured, stated = text
    if share > MOST_OF_PEAK:
        yield Caveat(
            code="above-datasheet",
            message=f"the {what} ceiling, {measured}, is {units.percent(share)} of what the "
            f"datasheet of {datasheet.name} states ({stated}): one of the two is wrong",
            remedy="Check the device's name, and whether the buffer was in a cache",
        )
    elif share < least:
        yield Caveat(
            code="far-below-datasheet",
            message=f"the {what} ceiling, {measured}, is only {units.percent(share)} of what the "
            f"datasheet of {datasheet.name} states ({stated})",
            remedy="Look for a power limit, a low clock, or another process on the device",
        )


def _points(points: Sequence[RooflinePoint], datasheet: Datasheet) -> Iterator[Caveat]:
    for point in points:
        for name, share in (("MFU", point.mfu), ("MBU", point.mbu)):
            if share is not None and share > MOST_OF_PEAK:
                yield Caveat(
                    code="above-datasheet",
                    message=f"{point.label}: {name} is {units.percent(share)} of the datasheet of "
                    f"{datasheet.name}: bytes or FLOPs are over-counted, or a cache served them",
                    phase=point.phase,
                )


def _power(ceilings: Ceilings, datasheet: Datasheet) -> Iterator[Caveat]:
    gpu = ceilings.environment.gpu
    limit_w = gpu.power_limit_w if gpu else None
    if limit_w and datasheet.tdp_w and limit_w < _LIMITED_POWER * datasheet.tdp_w:
        yield Caveat(
            code="power-limited",
            message=f"the power limit is {units.si(limit_w, 'W')}, and the datasheet's peaks are "
            f"stated at {units.si(datasheet.tdp_w, 'W')}",
            remedy="Compare MFU with other machines only at the same limit",
        )
