"""Tensors of a GGUF file: unpacked to floats while they are loaded, or taken over as they are."""

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType, quants

from llmprof.architectures.gguf_header import GgufTensor, read_header
from llmprof.architectures.gguf_names import gguf_name
from llmprof.engine.quantization.gguf_blocks import can_take_over, take_over
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.rotary_rows import halves_of_adjacent_pairs, rotates
from llmprof.errors import InputError
from llmprof.schema.model import ModelConfig

_CHUNK_NUMBERS: Final = 1 << 22
"""Unpacked at once, in fp32: the detour stays at 16 MiB however large the tensor is."""


class GgufTensors:
    """Reads by Hugging Face name from a read-only map of the file."""

    def __init__(self, path: Path, model: ModelConfig) -> None:
        """Check the header and map the file.

        Raises:
            InputError: a damaged or truncated file.
        """
        header = read_header(path)
        self._path = path
        self._model = model
        self._tensors = {tensor.name: tensor for tensor in header.tensors}
        self._architecture = str(header.metadata.get("general.architecture"))
        self._interleaved = self._architecture == "llama"
        """Only llama files keep the two channels of a rotary pair side by side."""
        try:
            self._bytes: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise InputError(f"cannot map {path}: {error}") from error

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        """Unpack a tensor, or one expert's part of it, converting it to the dtype of `out`.

        Raises:
            InputError: the file does not hold it, or too little of it.
        """
        tensor = self._find(name)
        rows = self._stored_rows(tensor, expert)
        order = self._row_order(name, len(rows))
        target = out.view(len(rows), -1)
        step = max(1, _CHUNK_NUMBERS // target.shape[1])
        for start in range(0, len(rows), step):
            chunk = slice(start, start + step)
            packed = rows[chunk] if order is None else rows[order[chunk]]
            target[chunk].copy_(self._as_published(name, _unpacked(packed, tensor)))

    def _as_published(self, name: str, numbers: torch.Tensor) -> torch.Tensor:
        """Converters add the offset of a gain (Gemma) to the norms that they store."""
        offset = self._model.norm_gain_offset
        return numbers - offset if offset and name.endswith("norm.weight") else numbers

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        """Copy a packed tensor as it is stored; False where its format is not that of `out`.

        Raises:
            InputError: the file does not hold it, or too little of it.
        """
        tensor = self._find(name)
        if not can_take_over(tensor.type.name, out):
            return False
        rows = self._stored_rows(tensor, expert)
        order = self._row_order(name, len(rows))
        take_over(_readable(rows if order is None else rows[order]), tensor.type.name, out)
        return True

    def _find(self, name: str) -> GgufTensor:
        own = gguf_name(name, self._architecture)
        tensor = self._tensors.get(own)
        if tensor is None:
            raise InputError(f"{self._path}: tensor '{own}' is missing")
        return tensor

    def _stored_rows(self, tensor: GgufTensor, expert: int | None) -> npt.NDArray[np.uint8]:
        """[rows, bytes per row]; a vector is one number per row, so that its order can change too.

        Of the matrices of all experts the rows of one.
        """
        stored = self._bytes[tensor.offset : tensor.offset + tensor.stored_bytes]
        if len(stored) < tensor.stored_bytes:
            raise InputError(
                f"{self._path} is truncated: it holds {len(stored)} of the "
                f"{tensor.stored_bytes} bytes of tensor '{tensor.name}'"
            )
        if expert is None:
            return stored.reshape(tensor.shape[0], -1)
        experts, rows, _ = tensor.shape
        first = expert * rows
        return stored.reshape(experts * rows, -1)[first : first + rows]

    def _row_order(self, name: str, rows: int) -> npt.NDArray[np.intp] | None:
        """Row r of the checkpoint is row order[r] of the file; None where they are the same.

        The converter for llama files turns the rows of a query or key head from (half, pair) into
        (pair, half), for rotations of adjacent channels; ours are of halves.
        """
        if not self._interleaved or not rotates(name):
            return None
        size = self._model.head_dim
        return halves_of_adjacent_pairs(rows, size, size)


def _unpacked(packed: npt.NDArray[np.uint8], tensor: GgufTensor) -> torch.Tensor:
    """Rows of stored bytes -> [rows, numbers] in fp32, or in the float dtype they are stored in."""
    packed = np.ascontiguousarray(packed)
    match tensor.type.name:
        case "F32":
            return _readable(packed.view(np.float32))
        case "F16":
            return _readable(packed.view(np.float16))
        case "BF16":
            return _readable(packed.view(np.int16)).view(torch.bfloat16)
        case name:
            return _readable(quants.dequantize(packed, GGMLQuantizationType[name]))


def _readable(numbers: npt.NDArray[np.generic]) -> torch.Tensor:
    """As a tensor; torch warns about arrays that it may not write to, such as a mapped file's."""
    return torch.from_numpy(numbers if numbers.flags.writeable else numbers.copy())
