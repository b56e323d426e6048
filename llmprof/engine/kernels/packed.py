"""The kernels that read packed weights, for each kind of device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.matvec import matvec, matvec_supported, most_rows
from llmprof.engine.kernels.triton.available import triton_trouble
from llmprof.engine.kernels.unpack import unpack_rows_

_Optional = torch.Tensor | None
_Multiply = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, _Optional, _Optional, str, int], torch.Tensor
]
_MultiplyAdd = Callable[
    [
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        _Optional,
        _Optional,
        str,
        int,
    ],
    None,
]
_Unpack = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, _Optional, _Optional, int, str, int], None
]
GPU_ROWS: Final = 32
"""Of activations, that a GPU multiplies by packed weights as they are; with more, unpacking them
once for a library's product costs less than tensor cores lose in a kernel of ours."""


@dataclass(frozen=True, slots=True)
class PackedKernels:
    multiply: _Multiply
    """See `kernels.matvec.matvec`."""
    multiply_name: str
    multiply_add_: _MultiplyAdd | None
    """The same, added to the tensor that comes first; None: a product and an addition."""
    unpack_rows_: _Unpack
    """See `kernels.unpack.unpack_rows_`."""
    unpack_name: str
    tile_bytes: int
    """Of weights that are unpacked at once for a product of many rows."""
    most_rows: Callable[[WeightFormat, tuple[int, int], str], int]
    """Of activations that one `multiply` takes: see `kernels.matvec.most_rows`."""


_found: Final[dict[str, PackedKernels]] = {}


def packed_kernels(device_type: str) -> PackedKernels:
    """For `cpu` or `cuda`; triton is imported for a GPU only.

    Kept in a plain dictionary: torch.compile looks into one, and warns of what `functools` keeps.
    """
    found = _found.get(device_type)
    if found is None:
        found = _found[device_type] = _find(device_type)
    return found


def _find(device_type: str) -> PackedKernels:
    if device_type == "cpu":
        return PackedKernels(
            multiply=matvec,
            multiply_name="llmprof::matvec",
            multiply_add_=None,
            unpack_rows_=unpack_rows_,
            unpack_name="llmprof::unpack_rows_",
            tile_bytes=4 << 20,  # read by the product while it is still in a cache
            most_rows=most_rows,
        )
    from llmprof.engine.kernels.triton.weight_matvec import triton_matvec, triton_matvec_add_
    from llmprof.engine.kernels.triton.weight_unpack import triton_unpack_rows_

    return PackedKernels(
        multiply=triton_matvec,
        multiply_name="llmprof::triton_matvec",
        multiply_add_=triton_matvec_add_,
        unpack_rows_=triton_unpack_rows_,
        unpack_name="llmprof::triton_unpack_rows_",
        tile_bytes=256 << 20,  # large enough to fill the GPU, no second copy of a large head
        most_rows=lambda weights, shape, activations: GPU_ROWS,
    )


def packed_trouble(device: str) -> str | None:
    """Why `cpu` or `cuda:N` cannot read packed weights, as the end of a sentence; None: it can."""
    if device != "cpu":
        return triton_trouble(device)
    return None if matvec_supported() else "the CPU does not convert fp16 (F16C or Arm)"
