"""GGUF blocks of 32 weights that are already in a format of ours: taken over, not rounded again.

Source: block_q8_0, block_q4_0 and block_q4_1 of ggml-common.h.
"""

from typing import Final

import torch

from llmprof.engine.quantization.packed_weight import PackedWeight

_FP16_BYTES: Final = 2
_BLOCK_FIELDS: Final = {"Q8_0": (1, 32), "Q4_0": (1, 16), "Q4_1": (2, 16)}
"""Numbers in fp16 (scale, then minimum) and bytes of codes."""
_MIDDLE_INT4: Final = 8


def can_take_over(ggml_type: str, packed: PackedWeight) -> bool:
    """Whether the blocks of a GGUF tensor hold the codes, scales and minimums that `packed` wants.

    A symmetric block is an asymmetric one whose minimum is -8 scales: exact in fp16.
    """
    fmt = packed.format
    if fmt.group_size != 32 or ggml_type not in _BLOCK_FIELDS:
        return False
    if fmt.number == "int8":
        return ggml_type == "Q8_0"
    return ggml_type == "Q4_0" or (ggml_type == "Q4_1" and not fmt.symmetric)


def take_over(blocks: torch.Tensor, ggml_type: str, packed: PackedWeight) -> None:
    """Sort rows of blocks (bytes [out, bytes per row]) into codes, scales and minimums."""
    numbers, code_bytes = _BLOCK_FIELDS[ggml_type]
    by_block = blocks.view(len(blocks), -1, numbers * _FP16_BYTES + code_bytes)
    scales = by_block[:, :, : numbers * _FP16_BYTES].contiguous().view(torch.float16)
    codes = by_block[:, :, numbers * _FP16_BYTES :]
    packed.scales.copy_(scales[:, :, 0])
    if packed.minimums is not None:
        packed.minimums.copy_(scales[:, :, 1] if numbers > 1 else -_MIDDLE_INT4 * scales[:, :, 0])
    packed.codes.view(torch.uint8).copy_(codes.flatten(1))
