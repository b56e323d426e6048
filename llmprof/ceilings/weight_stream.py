"""Weights in the format of a run, streamed past the caches: floats, or codes with their scales."""

import math
from collections.abc import Iterator

import torch

from llmprof.ceilings.pool import Stream, random_pool
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.quantization.packed_weight import PackedWeight

Weight = torch.Tensor | PackedWeight

_CODES_PER_SCALE_BYTE = 4
"""At the densest: groups of 32 asymmetric int4 weights have 4 bytes of scale and minimum per 16 bytes of
codes. A stream of so many scales is as cold as the codes that they belong to, or colder."""


class WeightStream:
    """Cuts weights from a stream of numbers as large as what a step of the run reads.

    Codes, fp8 among them, are the stream's own bytes, whatever they mean: a decoder takes as long for any
    of them.
    Scales and minimums come from streams of their own, of normal numbers, since random bytes would
    hold denormal ones, which are slow.
    """

    def __init__(self, stream: Stream, *, scale_bytes: int | None = None) -> None:
        """`stream` is over floats of the run's dtype on its device.

        `scale_bytes` are all that its codes need, where weights of a single format are cut from it.
        """
        self._stream = stream
        self._scale_bytes = scale_bytes or stream.pool.nbytes // _CODES_PER_SCALE_BYTE
        self._scales: dict[torch.dtype, Stream] = {}

    @property
    def dtype(self) -> torch.dtype:
        return self._stream.pool.dtype

    @property
    def device(self) -> str:
        return str(self._stream.pool.device)

    @property
    def nbytes(self) -> int:
        """Of the stream: no weight may have more."""
        return self._stream.pool.nbytes

    def take(self, weights: WeightFormat, out_features: int, in_features: int) -> Weight:
        """The next weight [out_features, in_features]; uses memory of the stream, copies nothing."""
        if weights.packed:
            return PackedWeight.empty(weights, self.dtype, out_features, in_features, self._part)
        return self._stream.take(out_features * in_features).view(out_features, in_features)

    def pools(self) -> Iterator[torch.Tensor]:
        """All memory that weights have been cut from so far."""
        yield self._stream.pool
        yield from (scales.pool for scales in self._scales.values())

    def _part(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Codes or scales of this shape."""
        if dtype.is_floating_point and dtype.itemsize > 1:
            return self._scales_of(dtype).take(math.prod(shape)).view(shape)
        num_bytes = math.prod(shape)
        numbers = self._stream.take(-(-num_bytes // self._stream.pool.itemsize))
        return numbers.view(dtype)[:num_bytes].view(shape)

    def _scales_of(self, dtype: torch.dtype) -> Stream:
        if dtype not in self._scales:
            pool = random_pool(self._scale_bytes, str(self._stream.pool.device), dtype)
            self._scales[dtype] = Stream(pool)
        return self._scales[dtype]
