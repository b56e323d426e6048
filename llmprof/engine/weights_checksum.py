"""Whether the weights in memory are what they were: a sum over all of their bits."""

from collections.abc import Iterable
from typing import Final

import torch

_WORD_BYTES: Final = 8
_FACTOR: Final = 6364136223846793005
"""Odd, so that no bit of an earlier tensor is lost; Knuth's multiplier of 64-bit generators."""


def weights_checksum(tensors: Iterable[torch.Tensor]) -> str:
    """64 bits as 16 hex digits; another value as soon as one bit of one tensor is another.

    Each tensor's words are added up where it lies, at the speed of its memory, and tensors follow each
    other as digits of a number do. Two words of one tensor that have changed places are not seen.

    Args:
        tensors: contiguous, each on a boundary of 8 bytes, of any dtype and device.
    """
    total = 0
    for tensor in tensors:
        total = (total * _FACTOR + _sum_of_words(tensor)) % 2**64
    return f"{total:016x}"


def _sum_of_words(tensor: torch.Tensor) -> int:
    raw = tensor.view(-1).view(torch.uint8)
    whole = raw.numel() // _WORD_BYTES * _WORD_BYTES
    words = raw[:whole].view(torch.int64).sum()
    return int(words + raw[whole:].sum(dtype=torch.int64))
