"""Tensors of a Hugging Face checkpoint, one or several safetensors files. Nothing is unpickled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from llmprof.architectures.checkpoint_names import usual_name
from llmprof.architectures.families import find_family
from llmprof.costs.weight_formats import FP8
from llmprof.engine.quantization.fp8_checkpoints import (
    SCALE_PARTS,
    check_codes,
    dequantized,
    row_scales,
)
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
        self._scales: dict[str, dict[int | None, _Piece]] = {}
        """Of matrices in fp8, by expert."""
        for path in files:
            try:
                shard: Any = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise InputError(f"cannot read {path}: {error}") from error
            for name in shard.keys():  # noqa: SIM118 (not a mapping)
                at = usual_name(name, family.model_type)
                piece = _Piece(shard, path, name, at.expert)
                if at.part is None:
                    self._pieces.setdefault(at.name, []).append(piece)
                elif at.part in SCALE_PARTS:
                    self._scales.setdefault(at.name, {})[at.expert] = piece

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        """Copy a tensor, or one expert's part of it, converting it to the dtype of `out`.

        Raises:
            InputError: no shard holds it, or its data cannot be read.
            CapabilityError: it is stored in a format of 8 bits that the engine does not read.
        """
        for piece in self._found(name, expert):
            stored = piece.read(expert)
            if stored.dtype.itemsize == 1:
                stored = self._from_fp8(name, piece, stored, expert)
            out.copy_(self._ordered(name, stored))

    def _found(self, name: str, expert: int | None) -> list[_Piece]:
        if name not in self._pieces:
            raise InputError(f"tensor '{name}' is in none of the checkpoint's files")
        return [piece for piece in self._pieces[name] if piece.expert in (None, expert)]

    def _from_fp8(
        self, name: str, piece: _Piece, codes: torch.Tensor, expert: int | None
    ) -> torch.Tensor:
        where = f"tensor '{piece.name}' of {piece.path}"
        check_codes(codes, where)
        quantization = self._model.quantization
        block = None if quantization is None else quantization.block
        return dequantized(codes, self._scale_of(name, piece, expert), block, where)

    def _scale_of(self, name: str, piece: _Piece, expert: int | None) -> torch.Tensor:
        scale = self._scales.get(name, {}).get(piece.expert)
        if scale is None:
            raise InputError(f"tensor '{piece.name}' of {piece.path} has no scale beside it")
        return scale.read(expert)

    def _ordered(self, name: str, stored: torch.Tensor) -> torch.Tensor:
        """Rows in the order of rotations of halves."""
        if not (self._adjacent_pairs and rotates(name)):
            return stored
        model = self._model
        order = halves_of_adjacent_pairs(len(stored), model.head_dim, model.rotary_dim)
        return stored[torch.from_numpy(order)]

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        """Copy fp8 with a scale for each row or for all; False for floats, blocks and other formats.

        Raises:
            InputError: no shard holds it, or its data cannot be read.
        """
        if out.format != FP8:
            return False
        for piece in self._found(name, expert):
            codes = piece.read(expert)
            if codes.dtype is not torch.float8_e4m3fn:
                return False
            scales = row_scales(self._scale_of(name, piece, expert), len(codes))
            if scales is None:
                return False
            check_codes(codes, f"tensor '{piece.name}' of {piece.path}")
            numbers = self._ordered(name, codes.view(torch.uint8))  # indexing knows no fp8
            out.codes.copy_(numbers.view(torch.float8_e4m3fn))
            out.scales.copy_(self._ordered(name, scales))
        return True
