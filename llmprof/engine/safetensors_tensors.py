"""Tensors of a Hugging Face checkpoint, one or several safetensors files. Nothing is unpickled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from llmprof.architectures.checkpoint_names import usual_name
from llmprof.architectures.families import find_family
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.rotary_rows import halves_of_adjacent_pairs, rotates
from llmprof.errors import InputError
from llmprof.schema.model import ModelConfig


@dataclass(frozen=True, slots=True)
class _Piece:
    """A tensor in a file: a whole matrix, or that of one expert."""

    shard: Any
    path: Path
    name: str
    expert: int | None

    def read(self, expert: int | None) -> torch.Tensor:
        """The whole tensor, or one expert's matrix of it."""
        try:
            if expert is None or self.expert is not None:
                stored: torch.Tensor = self.shard.get_tensor(self.name)
            else:
                stored = self.shard.get_slice(self.name)[expert : expert + 1][0]
        except (SafetensorError, OSError) as error:
            raise InputError(f"cannot read tensor '{self.name}' of {self.path}: {error}") from error
        return stored


class SafetensorsTensors:
    """Reads by usual name from whichever shard holds it, under the family's own names."""

    def __init__(self, files: Sequence[Path], model: ModelConfig) -> None:
        """Open every shard.

        Raises:
            InputError: a shard that cannot be read.
        """
        family = find_family(model.model_type, str(files[0]))
        self._model = model
        self._adjacent_pairs = family.adjacent_pairs
        self._pieces: dict[str, list[_Piece]] = {}
        for path in files:
            try:
                shard: Any = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise InputError(f"cannot read {path}: {error}") from error
            for name in shard.keys():  # noqa: SIM118 (not a mapping)
                at = usual_name(name, family.model_type)
                self._pieces.setdefault(at.name, []).append(_Piece(shard, path, name, at.expert))

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        """Copy a tensor, or one expert's part of it, converting it to the dtype of `out`.

        Raises:
            InputError: no shard holds it, or its data cannot be read.
        """
        if name not in self._pieces:
            raise InputError(f"tensor '{name}' is in none of the checkpoint's files")
        for piece in self._pieces[name]:
            if piece.expert in (None, expert):
                out.copy_(self._ordered(name, piece.read(expert)))

    def _ordered(self, name: str, stored: torch.Tensor) -> torch.Tensor:
        """Rows in the order of rotations of halves."""
        if not (self._adjacent_pairs and rotates(name)):
            return stored
        model = self._model
        order = halves_of_adjacent_pairs(len(stored), model.head_dim, model.rotary_dim)
        return stored[torch.from_numpy(order)]

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        """Nothing is packed here."""
        return False
