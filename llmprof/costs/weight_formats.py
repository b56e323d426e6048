"""How a weight matrix is stored, and how many bytes that takes: the one copy of the arithmetic."""

from dataclasses import dataclass
from typing import Final

from llmprof.errors import CapabilityError

PACKED_TOGETHER: Final = 32
"""Codes of a row that are packed as one piece, as in GGUF's blocks."""
_NUMBER_BITS: Final = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
_FP8_MULTIPLE: Final = 16
"""Of both sizes of a matrix in fp8 arithmetic: what `torch._scaled_mm` asks for."""
_CHANNEL_SCALE_BYTES: Final = 4
"""fp32: the scale of a whole row may be too small for fp16, and costs next to nothing."""
_GROUP_SCALE_BYTES: Final = 2
"""fp16, as in GGUF's blocks; an asymmetric group has a minimum of the same size."""


def fits_fp8_arithmetic(out_features: int, in_features: int) -> bool:
    """Whether tensor cores can multiply by an fp8 matrix of this shape as it is stored."""
    return out_features % _FP8_MULTIPLE == 0 and in_features % _FP8_MULTIPLE == 0


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Stored numbers and, where they are codes, what turns them back into weights.

    int8: weight = scale * code, codes -127 ... 127 (-128 in a file that has them). int4 symmetric:
    weight = scale * (code - 8); asymmetric: weight = scale * code + minimum; codes 0 ... 15. fp8:
    weight = scale * float8_e4m3fn, one scale per row: what a floating point number loses does not
    depend on its size, so groups would gain little, and a scale per row is left out of the sum.
    """

    number: str
    """fp32, bf16, fp16, fp8, int8 or int4."""
    group_size: int | None = None
    """Adjacent weights of a row that share one scale, fewer in a row's last group where the size does
    not divide the row; None for one scale per row (int8 and fp8)."""
    symmetric: bool = True

    @property
    def packed(self) -> bool:
        return self.number in ("fp8", "int8", "int4")

    @property
    def name(self) -> str:
        """As documents spell it: bf16, int8, int8_g32, int4_g32_asym, int4_g64_sym, fp8, ..."""
        group = f"_g{self.group_size}" if self.group_size else ""
        sides = ("_sym" if self.symmetric else "_asym") if self.number == "int4" else ""
        return f"{self.number}{group}{sides}"

    @property
    def bits_per_weight(self) -> float:
        """In whole groups, scales and minimums included; scales of whole rows are left out."""
        bits = float(_NUMBER_BITS[self.number])
        return bits + 8 * self._group_bytes / self.group_size if self.group_size else bits

    def groups(self, in_features: int) -> int:
        """Groups of one row; 0 where the format has none."""
        return -(-in_features // self.group_size) if self.group_size else 0

    def stored_bytes(self, out_features: int, in_features: int) -> int:
        """Of a matrix [out_features, in_features], scales and minimums included."""
        codes = self.code_bytes(out_features, in_features)
        if self.group_size:
            return codes + out_features * self.groups(in_features) * self._group_bytes
        return codes + (out_features * _CHANNEL_SCALE_BYTES if self.packed else 0)

    def code_bytes(self, out_features: int, in_features: int) -> int:
        """Of the numbers alone."""
        return out_features * in_features * _NUMBER_BITS[self.number] // 8

    def check_fits(self, name: str, in_features: int) -> None:
        """Refuse a matrix whose rows cannot be packed.

        Raises:
            CapabilityError: with the numbers.
        """
        if self.group_size and in_features % PACKED_TOGETHER:
            raise CapabilityError(
                f"rows of {in_features} weights ({name}) cannot be stored as {self.name}: "
                f"no multiple of {PACKED_TOGETHER}",
                remedy="Set weights.quantization=int8 and weights.group_size=channel",
            )

    @property
    def _group_bytes(self) -> int:
        return _GROUP_SCALE_BYTES * (1 if self.symmetric else 2)


FP8: Final = WeightFormat("fp8")
