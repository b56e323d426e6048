"""The part of each tensor that one of several ranks keeps, cut out while it is read."""

from typing import Protocol

import torch

from llmprof.architectures.manifest import expected_tensors
from llmprof.costs.tensor_parallel import TensorSplit, is_summed_bias, split_of
from llmprof.costs.weight_layout import format_of
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.errors import CapabilityError
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import WeightsSettings


def check_groups_uncut(model: ModelConfig, weights: WeightsSettings, ranks: int) -> None:
    """Refuse to cut rows within a group of weights: the parts would have scales of their own.

    Raises:
        CapabilityError: names the tensor and the sizes.
    """
    for name, shape in expected_tensors(model).items():
        split = split_of(model, name, shape, ranks)
        if split is None or not split.by_columns:
            continue
        group, columns = format_of(name, shape, weights, "fp32").group_size, shape[-1] // ranks
        if group and columns % group:
            raise CapabilityError(
                f"rows of '{name}' cut into {columns} columns for each of {ranks} ranks are no whole "
                f"groups of {group} weights",
                remedy="Set a smaller weights.group_size, or weights.quantization=none",
            )


class _Reader(Protocol):
    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None: ...
    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool: ...


class RankTensors:
    """See `loading.TensorReader`; what it is given has the shape of the rank's part.

    The whole of a tensor is in memory while its part is cut out, and no longer.
    """

    def __init__(self, reader: _Reader, model: ModelConfig, rank: int, ranks: int) -> None:
        """`model` is the whole one."""
        self._reader = reader
        self._model = model
        self._rank = rank
        self._ranks = ranks
        self._shapes = expected_tensors(model)

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        """Write the rank's part of a tensor, or of one expert's part of it, into `out`.

        A bias that is added to a sum of all ranks is zero on every rank but the first.

        Raises:
            InputError: the tensor is not there, or its data cannot be read.
        """
        split = self._split(name)
        if split is None:
            self._reader.read_into(name, out, expert)
            if self._rank and is_summed_bias(name):
                out.zero_()
            return
        whole = torch.empty(self._shape(name, expert), dtype=out.dtype, device=out.device)
        self._reader.read_into(name, whole, expert)
        out.copy_(self._cut(whole, split))

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        """Copy the rank's part of a packed tensor as it is stored.

        Raises:
            InputError: the tensor is not there, or its data cannot be read.
        """
        split = self._split(name)
        if split is None:
            return self._reader.take_over(name, out, expert)
        rows, columns = self._shape(name, expert)
        whole = PackedWeight.empty(out.format, out.dtype, rows, columns, torch.empty)
        if not self._reader.take_over(name, whole, expert):
            return False
        out.codes.copy_(self._cut(whole.codes, split))
        out.scales.copy_(self._cut(whole.scales, split))
        if out.minimums is not None and whole.minimums is not None:
            out.minimums.copy_(self._cut(whole.minimums, split))
        return True

    def _shape(self, name: str, expert: int | None) -> tuple[int, ...]:
        whole = self._shapes[name]
        return whole if expert is None else whole[1:]

    def _split(self, name: str) -> TensorSplit | None:
        return split_of(self._model, name, self._shapes[name], self._ranks)

    def _cut(self, whole: torch.Tensor, split: TensorSplit) -> torch.Tensor:
        """Columns of codes and of scales are fewer than those of the weights, and in proportion."""
        if split.by_columns:
            part = whole.shape[-1] // self._ranks
            return whole.narrow(-1, self._rank * part, part)
        axis = max(0, whole.dim() - 2)
        parts = [
            whole.narrow(axis, start, size) for start, size in split.spans(self._rank, self._ranks)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=axis)
