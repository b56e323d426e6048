"""From float weights to codes: scales that keep the squared error of each group small.

Plain rounding of 4-bit weights (a group's extremes are the ends of the range) wastes codes on
outliers. Here several narrower ranges are tried per group, scale and minimum are fitted to the codes
of each by least squares, and the best is kept (the idea of llama.cpp's k-quants; HQQ optimises a
sparser norm instead).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import torch

from llmprof.costs.weight_formats import PACKED_TOGETHER, WeightFormat
from llmprof.engine.quantization.packed_weight import PackedWeight

_LARGEST_INT8: Final = 127
_LARGEST_INT4: Final = 15
_MIDDLE_INT4: Final = 8
_LARGEST_FP16: Final = 65504.0
_LARGEST_FP8: Final = 448.0
_SHRINKS: Final = (1.0, 0.92, 0.85, 0.78)
"""Of the range between a group's extremes. On normally distributed weights they lower the error of
groups of 32 (128) by 6 % (6 %) against plain rounding; twice as many would add 1 %."""
_CHUNK_NUMBERS: Final = 1 << 15
"""Weights that are worked on at once: their temporaries stay in the cache, and torch leaves so few
to the calling thread, of which there are several here."""
_GPU_CHUNK_NUMBERS: Final = 1 << 26
"""A GPU wants much at once; the temporaries take about 2 GiB."""


def quantize_into(weight: torch.Tensor, packed: PackedWeight, *, search: bool = True) -> None:
    """Round a float matrix [out, in] to the codes of `packed`, which has its shape.

    `search=False` is plain rounding, which int4 models do not survive well: for comparisons.
    """
    on_cpu = packed.device.type == "cpu"
    numbers = _CHUNK_NUMBERS if on_cpu else _GPU_CHUNK_NUMBERS
    step = max(1, numbers // packed.in_features)

    def quantize(start: int) -> None:
        part = packed.part(start, min(step, packed.shape[0] - start))
        _quantize_rows(weight[start : start + step], part, search=search)

    with ThreadPoolExecutor(torch.get_num_threads() if on_cpu else 1) as pool:
        for _ in pool.map(quantize, range(0, packed.shape[0], step)):
            pass


@torch.inference_mode()
def _quantize_rows(weights: torch.Tensor, packed: PackedWeight, *, search: bool) -> None:
    fmt, weights = packed.format, weights.float()
    if fmt.number == "fp8":
        _round_rows_to_fp8(weights, packed)
        return
    if fmt.group_size is None:
        fit = _fit_rows_in_int8(weights.unsqueeze(1), search=search)
        packed.codes.copy_(fit.codes.squeeze(1))
        packed.scales.copy_(fit.scale.view(-1))
        return
    codes = torch.empty_like(weights)
    whole = packed.in_features // fmt.group_size * fmt.group_size
    for begin, end in ((0, whole), (whole, packed.in_features)):
        if begin == end:
            continue
        size = min(fmt.group_size, end - begin)
        fit = _fit(weights[:, begin:end].reshape(len(weights), -1, size), fmt, search=search)
        codes[:, begin:end] = fit.codes.flatten(1)
        groups = slice(begin // fmt.group_size, -(-end // fmt.group_size))
        packed.scales[:, groups] = fit.scale.squeeze(2)
        if packed.minimums is not None:
            packed.minimums[:, groups] = fit.minimum.squeeze(2)
    packed.codes.copy_(pack_nibbles(codes) if fmt.number == "int4" else codes)


def _round_rows_to_fp8(weights: torch.Tensor, packed: PackedWeight) -> None:
    """A row's largest weight becomes the largest number: the smallest ones keep their bits that way.

    Cutting outliers off would gain nothing: all but the smallest numbers are rounded by up to 1/16 of
    themselves, whatever the scale is.
    """
    scale = weights.abs().amax(-1, keepdim=True) / _LARGEST_FP8
    packed.codes.copy_(_divided(weights, scale))
    packed.scales.copy_(scale.view(-1))


def pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """Codes 0 ... 15 [rows, in] to bytes [rows, in / 2]: code i of 32 below code i + 16."""
    halves = codes.to(torch.uint8).view(len(codes), -1, 2, PACKED_TOGETHER // 2)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Groups of weights [rows, groups, size] as codes, scales and minimums."""

    codes: torch.Tensor
    """Whole numbers, as floats."""
    scale: torch.Tensor
    """[rows, groups, 1], rounded as it will be stored."""
    minimum: torch.Tensor
    """What code 0 stands for, rounded likewise."""

    def squared_error(self, weights: torch.Tensor) -> torch.Tensor:
        """Of each group: [rows, groups, 1]."""
        error = torch.addcmul(self.minimum, self.codes, self.scale).sub_(weights)
        return error.square_().sum(-1, keepdim=True)


def _fit(weights: torch.Tensor, fmt: WeightFormat, *, search: bool) -> _Fit:
    if fmt.number == "int8":
        return _fit_int8(weights)
    low, high = weights.amin(-1, keepdim=True), weights.amax(-1, keepdim=True)
    if fmt.symmetric:
        return _fit_symmetric(weights, low, high, search=search)
    return _fit_asymmetric(weights, low, high, search=search)


def _fit_int8(weights: torch.Tensor) -> _Fit:
    """A group's largest weight is the end of the range: 8 bits lose little."""
    scale = _as_fp16(weights.abs().amax(-1, keepdim=True) / _LARGEST_INT8)
    return _round_int8(weights, scale)


def _fit_rows_in_int8(weights: torch.Tensor, *, search: bool) -> _Fit:
    """A whole row holds outliers: cutting one off may be better for all others."""
    extreme = weights.abs().amax(-1, keepdim=True) / _LARGEST_INT8
    best = _round_int8(weights, extreme)
    if not search:
        return best
    least = best.squared_error(weights)
    for shrink in _SHRINKS[1:]:
        best, least = _better(best, least, _round_int8(weights, extreme * shrink), weights)
    return best


def _round_int8(weights: torch.Tensor, scale: torch.Tensor) -> _Fit:
    codes = _divided(weights, scale).round_().clamp_(-_LARGEST_INT8, _LARGEST_INT8)
    return _Fit(codes, scale, torch.zeros_like(scale))


def _fit_asymmetric(
    weights: torch.Tensor, low: torch.Tensor, high: torch.Tensor, *, search: bool
) -> _Fit:
    best = _round_asymmetric(weights, (high - low) / _LARGEST_INT4, low)
    if not search:
        return best
    least = best.squared_error(weights)
    size, sum_w = weights.shape[-1], weights.sum(-1, keepdim=True)
    for shrink in _SHRINKS:
        cut = (high - low) * (1 - shrink) / 2
        tried = _round_asymmetric(weights, (high - low) * shrink / _LARGEST_INT4, low + cut)
        # least squares of scale * code + minimum against the weights
        sum_q = tried.codes.sum(-1, keepdim=True)
        sum_qq = tried.codes.square().sum(-1, keepdim=True)
        sum_qw = (tried.codes * weights).sum(-1, keepdim=True)
        spread = size * sum_qq - sum_q.square()
        scale = _divided(size * sum_qw - sum_q * sum_w, spread)
        tried = _round_asymmetric(weights, scale, (sum_w - scale * sum_q) / size)
        best, least = _better(best, least, tried, weights)
    return best


def _round_asymmetric(weights: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor) -> _Fit:
    scale, minimum = _as_fp16(scale), _as_fp16(minimum)
    codes = _divided(weights - minimum, scale).round_().clamp_(0, _LARGEST_INT4)
    return _Fit(codes, scale, minimum)


def _fit_symmetric(
    weights: torch.Tensor, low: torch.Tensor, high: torch.Tensor, *, search: bool
) -> _Fit:
    """The wider side gets the 8 codes below the middle, if need be by a negative scale."""
    extreme = torch.where(-low > high, low, high)
    best = _round_symmetric(weights, extreme / -_MIDDLE_INT4)
    if not search:
        return best
    least = best.squared_error(weights)
    for shrink in _SHRINKS:
        tried = _round_symmetric(weights, extreme * shrink / -_MIDDLE_INT4)
        signed = tried.codes - _MIDDLE_INT4
        sum_qw = (signed * weights).sum(-1, keepdim=True)
        scale = _divided(sum_qw, signed.square_().sum(-1, keepdim=True))
        tried = _round_symmetric(weights, scale)
        best, least = _better(best, least, tried, weights)
    return best


def _round_symmetric(weights: torch.Tensor, scale: torch.Tensor) -> _Fit:
    scale = _as_fp16(scale)
    codes = _divided(weights, scale).round_().add_(_MIDDLE_INT4).clamp_(0, _LARGEST_INT4)
    return _Fit(codes, scale, -_MIDDLE_INT4 * scale)


def _better(
    best: _Fit, least: torch.Tensor, tried: _Fit, weights: torch.Tensor
) -> tuple[_Fit, torch.Tensor]:
    """The better fit of each group, and its error."""
    error = tried.squared_error(weights)
    wins = error < least
    return (
        _Fit(
            torch.where(wins, tried.codes, best.codes),
            torch.where(wins, tried.scale, best.scale),
            torch.where(wins, tried.minimum, best.minimum),
        ),
        torch.where(wins, error, least),
    )


def _divided(numbers: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Zero where the divisor is: in a group of equal weights every code is as good."""
    return torch.where(by == 0, 0.0, numbers / by)


def _as_fp16(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.clamp(-_LARGEST_FP16, _LARGEST_FP16).half().float()
