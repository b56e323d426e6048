"""A weight matrix in a packed format, as the kernels read it."""

from dataclasses import dataclass
from typing import Protocol

import torch

from llmprof.costs.weight_formats import WeightFormat


class Allocate(Protocol):
    """`torch.empty`, or a weight memory's."""

    def __call__(self, shape: tuple[int, ...], /, *, dtype: torch.dtype) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """Codes and what turns them back into weights, each in an array of its own."""

    format: WeightFormat
    dtype: torch.dtype
    """Of the floats that it stands for."""
    in_features: int
    codes: torch.Tensor
    """int8 or float8_e4m3fn: [out, in]. int4: uint8 [out, in / 2], where byte i of 16 holds code i of 32 in its low
    and code i + 16 in its high half (the order of GGUF's Q4_0 and Q4_1)."""
    scales: torch.Tensor
    """fp16 [out, groups], or fp32 [out] where a row has one."""
    minimums: torch.Tensor | None
    """fp16 [out, groups] of an asymmetric format."""

    @classmethod
    def empty(
        cls,
        fmt: WeightFormat,
        dtype: torch.dtype,
        out_features: int,
        in_features: int,
        allocate: Allocate,
    ) -> "PackedWeight":
        """Uninitialised, every array from `allocate`."""
        groups = (out_features, fmt.groups(in_features))
        if fmt.number == "int4":
            codes = allocate((out_features, in_features // 2), dtype=torch.uint8)
        else:
            dtype_of_codes = torch.float8_e4m3fn if fmt.number == "fp8" else torch.int8
            codes = allocate((out_features, in_features), dtype=dtype_of_codes)
        scales = (
            allocate(groups, dtype=torch.float16)
            if fmt.group_size
            else allocate((out_features,), dtype=torch.float32)
        )
        minimums = None if fmt.symmetric else allocate(groups, dtype=torch.float16)
        return cls(fmt, dtype, in_features, codes, scales, minimums)

    @property
    def shape(self) -> tuple[int, int]:
        """[out_features, in_features]."""
        return self.codes.shape[0], self.in_features

    @property
    def nbytes(self) -> int:
        minimums = 0 if self.minimums is None else self.minimums.nbytes
        return self.codes.nbytes + self.scales.nbytes + minimums

    @property
    def device(self) -> torch.device:
        return self.codes.device

    def part(self, start: int, count: int) -> "PackedWeight":
        """A view of adjacent rows."""
        minimums = self.minimums
        return PackedWeight(
            self.format,
            self.dtype,
            self.in_features,
            self.codes.narrow(0, start, count),
            self.scales.narrow(0, start, count),
            None if minimums is None else minimums.narrow(0, start, count),
        )
