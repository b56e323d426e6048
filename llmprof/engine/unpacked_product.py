"""Products of many rows with packed weights: a tile of weights becomes floats, and then the next one."""

import torch
from torch.nn import functional

from llmprof.engine.kernels.packed import packed_kernels
from llmprof.engine.quantization.packed_weight import PackedWeight


def unpacked_product(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None
) -> torch.Tensor:
    """[rows, out_features], new; x [rows, in_features] in the dtype that W stands for.

    One operator in a step that torch.compile traces: it would give every tile memory of its own, and
    copy one to the next.
    """
    multiply = _one_operator if torch.compiler.is_compiling() else _by_tiles
    number, group_size = weight.format.number, weight.format.group_size or 0
    return multiply(x, weight.codes, weight.scales, weight.minimums, bias, number, group_size)


def unpack(out: torch.Tensor, weight: PackedWeight, ids: torch.Tensor) -> None:
    """Rows of W by number [rows] into out [rows, in_features], as floats."""
    unpack_rows_ = packed_kernels(out.device.type).unpack_rows_
    number, group_size = weight.format.number, weight.format.group_size or 0
    unpack_rows_(out, weight.codes, weight.scales, weight.minimums, ids, 0, number, group_size)


def _by_tiles(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> torch.Tensor:
    """Unpack a tile of rows, multiply by it, and use its memory for the next one."""
    kernels = packed_kernels(x.device.type)
    out_features, in_features = codes.shape[0], x.shape[1]
    tile_rows = max(1, min(out_features, kernels.tile_bytes // (in_features * x.itemsize)))
    tile = x.new_empty((tile_rows, in_features))
    if tile_rows == out_features:
        kernels.unpack_rows_(tile, codes, scales, minimums, None, 0, number, group_size)
        return functional.linear(x, tile, bias)
    out = x.new_empty((x.shape[0], out_features))
    for start in range(0, out_features, tile_rows):
        part = slice(start, min(start + tile_rows, out_features))
        weights = tile[: part.stop - start]
        kernels.unpack_rows_(weights, codes, scales, minimums, None, start, number, group_size)
        out[:, part] = functional.linear(x, weights, None if bias is None else bias[part])
    return out


_one_operator = torch.library.custom_op("llmprof::unpacked_product", _by_tiles, mutates_args=())


@_one_operator.register_fake
def _of_shape(x: torch.Tensor, codes: torch.Tensor, *_: object) -> torch.Tensor:
    return x.new_empty(x.shape[0], codes.shape[0])
