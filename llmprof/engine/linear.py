"""Matrix products with weights: the only place that chooses a kernel for them."""

from dataclasses import dataclass, field
from typing import Final

import torch
from torch.nn import functional

from llmprof.costs.weight_formats import WeightFormat, fits_fp8_arithmetic
from llmprof.engine.dtypes import DTYPE_NAMES
from llmprof.engine.kernels.fp8_products import PRODUCT_NAME, fp8_product, multiplies_fp8
from llmprof.engine.kernels.matmul import matmul, matmul_fits
from llmprof.engine.kernels.matvec import matvec
from llmprof.engine.kernels.packed import packed_kernels
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.unpacked_product import unpack, unpacked_product

_USUAL_SHAPE: Final = (1024, 1024)
StoredWeight = tuple[
    torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, str, int
]
"""Numbers or codes, scales, minimums, bias, what the first of them holds, and the group size."""


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x W^T + b, for x [rows, in_features] and W [out_features, in_features].

    x has exactly two dimensions: with three, torch may turn [rows, 1, in] into a batched product
    that copies the weight once per row. It is of the dtype of W, or of the floats that W stands for.
    """

    weight: torch.Tensor | PackedWeight
    bias: torch.Tensor | None = None
    few_rows: int = field(init=False)
    """Up to so many rows of x our own kernel is the faster one."""
    fp8_arithmetic: bool = field(init=False)
    """More rows are rounded to fp8 and multiplied by W as it is."""

    def __post_init__(self) -> None:
        device_type = self.weight.device.type
        limit = _most_rows(self.format, self.shape, _dtype_name(self.weight), device_type)
        object.__setattr__(self, "few_rows", limit)
        object.__setattr__(self, "fp8_arithmetic", _multiplies_fp8(self.format, self.weight))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= self.few_rows:
            return self._few_rows(x)
        if isinstance(self.weight, PackedWeight):
            if self.fp8_arithmetic:
                return fp8_product(x, self.weight.codes, self.weight.scales, self.bias)
            return unpacked_product(x, self.weight, self.bias)
        return _many_rows(x, self.weight, self.bias)

    def adds(self, rows: int) -> bool:
        """Whether `add_to_` can take so many rows.

        Not in a step that torch.compile traces: it can make the addition part of the norm after it.
        """
        if torch.compiler.is_compiling():
            return False
        if isinstance(self.weight, PackedWeight):
            kernels = packed_kernels(self.weight.device.type)
            return rows <= self.few_rows and kernels.multiply_add_ is not None
        return self.weight.device.type != "cpu" and self.bias is None

    def add_to_(self, total: torch.Tensor, x: torch.Tensor) -> None:
        """Add y to total [rows, out_features] before it is rounded, in the kernel of the product."""
        weight = self.weight
        if not isinstance(weight, PackedWeight):
            total.addmm_(x, weight.t())
            return
        multiply_add_ = packed_kernels(weight.device.type).multiply_add_
        assert multiply_add_ is not None, "asked of `adds` before"
        number, group_size = weight.format.number, weight.format.group_size or 0
        multiply_add_(
            total, x, weight.codes, weight.scales, weight.minimums, self.bias, number, group_size
        )

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows of W by number: the weight as an embedding table.

        Args:
            ids: [rows], int64.

        Returns:
            [rows, in_features], as floats.
        """
        if not isinstance(self.weight, PackedWeight):
            return functional.embedding(ids, self.weight)
        shape = (len(ids), self.weight.in_features)
        out = torch.empty(shape, dtype=self.weight.dtype, device=self.weight.device)
        unpack(out, self.weight, ids.contiguous())
        return out

    @property
    def stored(self) -> StoredWeight:
        """As the kernels of `kernels.fused` take it."""
        weight = self.weight
        if not isinstance(weight, PackedWeight):
            return weight, None, None, self.bias, _dtype_name(weight), 0
        number, group_size = weight.format.number, weight.format.group_size or 0
        return weight.codes, weight.scales, weight.minimums, self.bias, number, group_size

    @property
    def shape(self) -> tuple[int, int]:
        """[out_features, in_features]."""
        return self.weight.shape[0], self.weight.shape[1]

    @property
    def format(self) -> WeightFormat:
        """How W is stored."""
        if isinstance(self.weight, PackedWeight):
            return self.weight.format
        return WeightFormat(_dtype_name(self.weight))

    def kernel_name(self, rows: int) -> str:
        """The kernel that multiplies so many rows."""
        if rows <= self.few_rows:
            return _few_rows_name(self.format, self.weight.device.type)
        if self.fp8_arithmetic:
            return f"{PRODUCT_NAME} on {self.format.name}"
        return _many_rows_name(self.format, self.shape, self.weight.device.type, rows)

    def _few_rows(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if isinstance(weight, PackedWeight):
            number, group_size = weight.format.number, weight.format.group_size or 0
            multiply = packed_kernels(weight.device.type).multiply
            return multiply(
                x, weight.codes, weight.scales, weight.minimums, self.bias, number, group_size
            )
        return matvec(x, weight, None, None, self.bias, _dtype_name(weight), 0)


def kernel_name(rows: int, device: str, weights: WeightFormat | None = None) -> str:
    """The kernel that multiplies so many rows by a weight of usual size; bf16 unless told otherwise."""
    weights = weights or WeightFormat("bf16")
    kind = torch.device(device).type
    activations = "bf16" if weights.packed else weights.number
    if rows <= _most_rows(weights, _USUAL_SHAPE, activations, kind):
        return _few_rows_name(weights, kind)
    return _many_rows_name(weights, _USUAL_SHAPE, kind, rows)


def _multiplies_fp8(weights: WeightFormat, weight: torch.Tensor | PackedWeight) -> bool:
    """Whether many rows, in bf16, are multiplied by fp8 weights as they are."""
    fits = weights.number == "fp8" and fits_fp8_arithmetic(weight.shape[0], weight.shape[1])
    return fits and weight.dtype is torch.bfloat16 and multiplies_fp8(weight.device)


def _most_rows(
    weights: WeightFormat, shape: tuple[int, int], activations: str, device_type: str
) -> int:
    """Of activations that our own kernel takes; floats on a GPU are left to torch."""
    if device_type != "cpu" and not weights.packed:
        return 0
    return packed_kernels(device_type).most_rows(weights, shape, activations)


def _few_rows_name(weights: WeightFormat, device_type: str) -> str:
    return f"{packed_kernels(device_type).multiply_name} on {weights.name}"


def _many_rows_name(
    weights: WeightFormat, shape: tuple[int, int], device_type: str, rows: int
) -> str:
    if weights.packed:
        unpack = packed_kernels(device_type).unpack_name
        return f"{unpack} on {weights.name}, torch.nn.functional.linear"
    ours = device_type == "cpu" and weights.number == "bf16" and matmul_fits(shape, rows)
    return f"llmprof::matmul on {weights.name}" if ours else "torch.nn.functional.linear"


def _many_rows(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    on_cpu = x.is_cpu and x.dtype is torch.bfloat16 and weight.is_contiguous()
    if on_cpu and matmul_fits((weight.shape[0], weight.shape[1]), x.shape[0]):
        return matmul(x, weight, bias)
    return functional.linear(x, weight, bias)


def _dtype_name(weight: torch.Tensor | PackedWeight) -> str:
    return DTYPE_NAMES[weight.dtype]
