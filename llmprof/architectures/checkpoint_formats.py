"""Bytes of a weight matrix as a quantized checkpoint stores it: codes, scales, zeros and the rest.

Source: the tensors that AutoGPTQ, AutoAWQ, compressed-tensors, bitsandbytes, DeepSeek-V3's and
gpt-oss's checkpoints hold.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from llmprof.schema.checkpoint_format import CheckpointQuantization

_WORD_BITS: Final = 32
_WORD: Final = 4
_FP32: Final = 4
_SCALE: Final = 2
"""fp16 or bf16, the dtype of the model."""
_SHAPE_BYTES: Final = 16
"""compressed-tensors stores the shape of a packed matrix in two int64."""
_MX_BLOCK: Final = 32
_MX_BLOCK_BYTES: Final = 17
"""32 codes of four bits and an exponent of eight."""
_NF4_MAP_BYTES: Final = 16 * _FP32
_NESTED_BLOCK: Final = 256
_NESTED_MAP_BYTES: Final = 256 * _FP32


def stored_bytes(quantization: CheckpointQuantization, shape: tuple[int, ...]) -> int:
    """Of a matrix [out_features, in_features], or of a stack of them.

    bitsandbytes also stores a short JSON text per matrix, whose length varies: it is left out.
    """
    rows, columns = shape[-2:]
    return prod(shape[:-2]) * _METHODS[quantization.method](quantization, rows, columns)


def format_name(quantization: CheckpointQuantization) -> str:
    """As documents spell it: gptq_int4_g128, awq_int4_g64, fp8_b128x128, mxfp4, ..."""
    if quantization.method in ("mxfp4", "fp8"):
        block = quantization.block
        return quantization.method + (f"_b{block[0]}x{block[1]}" if block else "")
    group = f"_g{quantization.group_size}" if quantization.group_size else ""
    return f"{quantization.method}_{quantization.number}{quantization.bits}{group}"


def holds_fp8(one: CheckpointQuantization) -> bool:
    """Whether matrices are stored as fp8 numbers, one in a byte, with scales beside them."""
    plain = one.method == "fp8" or (one.method == "compressed-tensors" and not one.packed)
    return plain and (one.number, one.bits) == ("float", 8)


def _gptq(one: CheckpointQuantization, rows: int, columns: int) -> int:
    """Zeros are stored, and the group of each input row, whether they say anything or not."""
    groups = _groups(one, columns)
    codes = _words(columns, one.bits) * rows
    zeros = _words(rows, one.bits) * groups
    return codes + zeros + groups * rows * _SCALE + columns * _WORD


def _awq(one: CheckpointQuantization, rows: int, columns: int) -> int:
    groups = _groups(one, columns)
    return _words(rows, one.bits) * (columns + groups) + groups * rows * _SCALE


def _compressed(one: CheckpointQuantization, rows: int, columns: int) -> int:
    groups = _groups(one, columns)
    scales = _scales(one, rows, columns, groups) * _SCALE
    inputs = _SCALE if one.input_scales else 0
    index = columns * _WORD if one.ordered else 0
    if not one.packed:
        return rows * columns + scales + inputs + index
    zeros = 0 if one.symmetric else _words(rows, one.bits) * groups
    return _words(columns, one.bits) * rows + scales + zeros + inputs + index + _SHAPE_BYTES


def _fp8(one: CheckpointQuantization, rows: int, columns: int) -> int:
    scales = _scales(one, rows, columns, 1) * _FP32
    return rows * columns + scales + (_FP32 if one.input_scales else 0)


def _mxfp4(_one: CheckpointQuantization, rows: int, columns: int) -> int:
    return rows * -(-columns // _MX_BLOCK) * _MX_BLOCK_BYTES


def _bitsandbytes(one: CheckpointQuantization, rows: int, columns: int) -> int:
    count = rows * columns
    if one.bits == 8:
        return count + rows * _FP32 + 1
    blocks = -(-count // (one.group_size or count))
    codes = -(-count // 2) + _NF4_MAP_BYTES
    if not one.double_quantized:
        return codes + blocks * _FP32
    return codes + blocks + -(-blocks // _NESTED_BLOCK) * _FP32 + _NESTED_MAP_BYTES


def _groups(one: CheckpointQuantization, columns: int) -> int:
    return -(-columns // one.group_size) if one.group_size else 1


def _scales(one: CheckpointQuantization, rows: int, columns: int, groups: int) -> int:
    if one.block:
        return -(-rows // one.block[0]) * -(-columns // one.block[1])
    return 1 if one.per_tensor else rows * groups


def _words(count: int, bits: int) -> int:
    """Bytes of so many codes side by side in int32."""
    return -(-count * bits // _WORD_BITS) * _WORD


_METHODS: Final[Mapping[str, Callable[[CheckpointQuantization, int, int], int]]] = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
}
