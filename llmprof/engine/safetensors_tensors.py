"""Tensors of a Hugging Face checkpoint, one or several safetensors files. Nothing is unpickled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.errors import InputError


class SafetensorsTensors:
    """Reads by name from whichever shard holds it."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Open every shard.

        Raises:
            InputError: a shard that cannot be read.
        """
        self._files: dict[str, tuple[Any, Path]] = {}
        for path in files:
            try:
                shard: Any = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise InputError(f"cannot read {path}: {error}") from error
            self._files.update(dict.fromkeys(shard.keys(), (shard, path)))

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Copy a tensor, converting it to the dtype of `out`.

        Raises:
            InputError: no shard holds it, or its data cannot be read.
        """
        if name not in self._files:
            raise InputError(f"tensor '{name}' is in none of the checkpoint's files")
        shard, path = self._files[name]
        try:
            stored = shard.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise InputError(f"cannot read tensor '{name}' of {path}: {error}") from error
        out.copy_(stored)

    def take_over(self, name: str, out: PackedWeight) -> bool:
        """Nothing is packed here."""
        return False
