"""The dtype that a model is computed in, by its name in settings and documents."""

from dataclasses import dataclass
from typing import Final

import torch

from llmprof.schema.model import WeightManifest
from llmprof.schema.settings import WeightDtype

TORCH_DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DTYPE_NAMES: Final = {dtype: name for name, dtype in TORCH_DTYPES.items()}

_DEQUANTIZED: Final = "bf16"
"""What packed weights become under `as_stored`, as long as no kernel reads them packed."""


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
    by_dtype: dict[str, int] = {}
    for tensor in stored.tensors:
        by_dtype[tensor.stored_dtype] = by_dtype.get(tensor.stored_dtype, 0) + tensor.stored_bytes
    packed = tuple(sorted(set(by_dtype) - set(TORCH_DTYPES)))
    if wanted is not WeightDtype.AS_STORED:
        return ComputeDtype(wanted.value, packed)
    if packed:
        return ComputeDtype(_DEQUANTIZED, packed)
    return ComputeDtype(max(by_dtype, key=lambda name: by_dtype[name]))
