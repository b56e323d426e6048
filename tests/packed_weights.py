"""Random packed weights, and what they stand for: decoded with numpy from the formats' definitions."""

import numpy as np
import numpy.typing as npt
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.quantization.packed_weight import PackedWeight

Matrix = npt.NDArray[np.float64]

FORMATS = (
    WeightFormat("fp8"),
    WeightFormat("int8"),
    WeightFormat("int8", 32),
    WeightFormat("int8", 128),
    WeightFormat("int4", 32, symmetric=False),
    WeightFormat("int4", 64, symmetric=True),
    WeightFormat("int4", 128, symmetric=False),
)


def random_packed(
    fmt: WeightFormat,
    out_features: int,
    in_features: int,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[PackedWeight, Matrix]:
    """Any codes, scales up to 0.02, minimums around zero; beside it the weights [out, in]."""
    drawn = np.random.default_rng(seed)
    packed = PackedWeight.empty(fmt, dtype, out_features, in_features, torch.empty)
    limit = 16 if fmt.number == "int4" else 256
    codes = drawn.integers(limit, size=(out_features, in_features))
    scales = drawn.uniform(0.001, 0.02, tuple(packed.scales.shape)).astype(_numpy(packed.scales))
    packed.scales.copy_(torch.from_numpy(scales))
    per_weight = _spread(scales, fmt, in_features)
    if fmt.number == "fp8":
        codes[codes & 0x7F == 0x7F] = 0  # not a number
        packed.codes.view(torch.uint8).copy_(torch.from_numpy(codes))
        return packed, e4m3(codes) * per_weight
    if fmt.number == "int8":
        codes -= 128
        packed.codes.copy_(torch.from_numpy(codes))
        return packed, codes * per_weight
    # byte i of 16 holds code i of 32 in its low half and code i + 16 in its high half
    halves = codes.reshape(out_features, -1, 2, 16)
    nibbles = (halves[:, :, 0] + 16 * halves[:, :, 1]).reshape(out_features, -1)
    packed.codes.copy_(torch.from_numpy(nibbles))
    if packed.minimums is None:
        return packed, (codes - 8) * per_weight
    minimums = drawn.uniform(-0.2, 0.1, tuple(packed.minimums.shape)).astype(np.float16)
    packed.minimums.copy_(torch.from_numpy(minimums))
    return packed, codes * per_weight + _spread(minimums, fmt, in_features)


def e4m3(codes: npt.NDArray[np.int64]) -> Matrix:
    """float8_e4m3fn by its definition: sign, 4 bits of exponent with bias 7, 3 bits of mantissa."""
    exponent, mantissa = codes >> 3 & 15, codes & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return np.where(codes & 128, -1, 1) * np.where(exponent, normal, mantissa / 8 * 2.0**-6)


def _numpy(tensor: torch.Tensor) -> npt.DTypeLike:
    return np.float16 if tensor.dtype is torch.float16 else np.float32


def _spread(numbers: npt.NDArray[np.generic], fmt: WeightFormat, in_features: int) -> Matrix:
    """One number per weight, from one per row or per group (a row's last group may be smaller)."""
    wide = numbers.astype(np.float64)
    if fmt.group_size is None:
        return np.repeat(wide[:, None], in_features, axis=1)
    return np.repeat(wide, fmt.group_size, axis=1)[:, :in_features]
