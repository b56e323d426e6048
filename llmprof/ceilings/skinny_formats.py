"""Skinny products in every format that the engine multiplies by, as roofs to predict others from."""

from collections.abc import Iterator
from typing import Final

from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.skinny import SkinnyProbe
from llmprof.ceilings.timing import Rates, Stopwatch
from llmprof.ceilings.weight_stream import WeightStream
from llmprof.ceilings.working_set import level_of_set, working_set_bytes
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.dtypes import TORCH_DTYPES
from llmprof.engine.kernels.packed import packed_trouble
from llmprof.engine.linear import kernel_name
from llmprof.schema.ceilings import BandwidthCeiling, SkinnyCeiling
from llmprof.schema.environment import Environment
from llmprof.store.progress import Progress

ROWS: Final = (1, 8, 32)
SHAPE: Final = (2048, 2048)
"""out_features, in_features: projections of a model of 1 to 2 billion parameters."""
_FLOATS: Final = (WeightFormat("bf16"), WeightFormat("fp32"))
_PACKED: Final = (
    WeightFormat("fp8"),
    WeightFormat("int8"),
    WeightFormat("int8", group_size=32),
    WeightFormat("int4", group_size=32, symmetric=False),
    WeightFormat("int4", group_size=64, symmetric=False),
    WeightFormat("int4", group_size=128, symmetric=False),
    WeightFormat("int4", group_size=32),
    WeightFormat("int4", group_size=128),
)
_MOST_PASSES: Final = 200
_FEWEST_PASSES: Final = 3
_PACKED_ACTIVATIONS: Final = "bf16"


def skinny_formats(device: str) -> tuple[WeightFormat, ...]:
    """Formats that the engine can multiply by on this device."""
    return _FLOATS if packed_trouble(device) else (*_FLOATS, *_PACKED)


def measure_skinny(
    environment: Environment,
    device: str,
    bandwidth: tuple[BandwidthCeiling, ...],
    *,
    budget_s: float,
    progress: Progress,
) -> tuple[SkinnyCeiling, ...]:
    """Bytes/s of weights at 1, 8 and 32 rows in about `budget_s`, and a second to fill the memory.

    Method: as the live reading of a run (`skinny.SkinnyProbe`), for one square projection.
    """
    formats = skinny_formats(device)
    share_s = budget_s / (len(formats) * len(ROWS))
    return tuple(_all(formats, environment, device, bandwidth, share_s, progress))


def _all(
    formats: tuple[WeightFormat, ...],
    environment: Environment,
    device: str,
    bandwidth: tuple[BandwidthCeiling, ...],
    share_s: float,
    progress: Progress,
) -> Iterator[SkinnyCeiling]:
    set_bytes = working_set_bytes(environment, device)
    stopwatch = Stopwatch(device)
    streams: dict[str, WeightStream] = {}
    for done, weights in enumerate(formats):
        progress.update("skinny matmuls", done, len(formats))
        activations = _PACKED_ACTIVATIONS if weights.packed else weights.number
        if activations not in streams:
            streams.clear()  # the memory of one dtype at a time
            pool = random_pool(set_bytes, device, TORCH_DTYPES[activations])
            streams[activations] = WeightStream(Stream(pool))
        stream = streams[activations]
        level = level_of_set(stream.nbytes, environment, bandwidth)
        for rows in ROWS:
            rates = _rates(weights, rows, stream, stopwatch, share_s)
            yield _ceiling(weights, rows, rates, level, device)
    progress.update("skinny matmuls", len(formats), len(formats))


def _rates(
    weights: WeightFormat, rows: int, stream: WeightStream, stopwatch: Stopwatch, budget_s: float
) -> Rates:
    probe = SkinnyProbe(
        [SHAPE],
        rows,
        stream,
        stopwatch,
        working_set_bytes=stream.nbytes,
        formats=[weights],
    )
    passes = probe.read(budget_s, most_passes=_MOST_PASSES).passes_bytes_per_s
    while len(passes) < _FEWEST_PASSES:
        passes += probe.read(0.0).passes_bytes_per_s
    return Rates(passes)


def _ceiling(
    weights: WeightFormat, rows: int, rates: Rates, level: str, device: str
) -> SkinnyCeiling:
    out_features, in_features = SHAPE
    return SkinnyCeiling(
        format=weights.name,
        rows=rows,
        out_features=out_features,
        in_features=in_features,
        level=level,
        bytes_per_s=rates.ceiling(device),
        median_bytes_per_s=rates.median,
        spread=rates.spread,
        kernel=kernel_name(rows, device, weights),
    )
