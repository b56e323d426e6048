"""Operands of a matmul that are not found in a GPU's L2, whatever their size.

Products of a model take their weights from memory: repeating a small one on the same operands would
measure a cache that no step has. On a CPU the same operands stay: its shapes are chosen to find the best
rate of the cores, and a call that is judged by its best would only become noisier.
"""

import itertools
from collections.abc import Callable
from typing import Final

import torch

from llmprof.ceilings.timing import Call

_L2_MULTIPLE: Final = 2


def l2_bytes(device: str) -> int:
    """Of a GPU, 0 of a CPU and where torch does not tell."""
    if device == "cpu":
        return 0
    return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))


def operand_sets(set_bytes: int, cache_bytes: int) -> int:
    """So many that together they exceed twice the cache: the next use of each finds it cold."""
    return _L2_MULTIPLE * cache_bytes // set_bytes + 1


def rotated(prepare: Callable[[], Call], sets: int) -> Call:
    """One product per call, on the next of so many sets of operands."""
    if sets == 1:
        return prepare()
    products = itertools.cycle([prepare() for _ in range(sets)])
    return lambda: next(products)()
