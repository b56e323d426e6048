"""The dtype that a model is computed in, by its name in settings and documents."""

from dataclasses import dataclass
from typing import Final

import torch

from llmprof.costs.weight_layout import float_dtype
from llmprof.schema.model import WeightManifest
from llmprof.schema.settings import WeightDtype

TORCH_DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DTYPE_NAMES: Final = {dtype: name for name, dtype in TORCH_DTYPES.items()}


@dataclass(frozen=True, slots=True)
class ComputeDtype:
    """Weights, activations and cache are all of this dtype."""

    name: str
    """fp32, bf16 or fp16."""
    dequantized_from: tuple[str, ...] = ()
    """Packed formats in the file that are unpacked at load: the engine reads more than it stores."""

    @property
    def torch(self) -> torch.dtype:
        return TORCH_DTYPES[self.name]


def compute_dtype(wanted: WeightDtype, stored: WeightManifest) -> ComputeDtype:
    """Resolve `weights.dtype` for the tensors that a file stores.

    `as_stored` keeps the float dtype that holds most of the bytes (norms are often kept in fp32
    beside matrices in 16 bits), and takes bf16 where any tensor is packed.
    """
    names = {tensor.stored_dtype for tensor in stored.tensors}
    packed = tuple(sorted(names - set(TORCH_DTYPES)))
    if wanted is not WeightDtype.AS_STORED:
        return ComputeDtype(wanted.value, packed)
    return ComputeDtype(float_dtype(stored), packed)
