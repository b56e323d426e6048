"""A Hugging Face checkpoint folder: config.json, safetensors in one file or in shards, tokenizer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.json_file import read_json_object
from llmprof.architectures.manifest import checked_manifest
from llmprof.architectures.safetensors_header import StoredTensor, read_header
from llmprof.architectures.stored_tensors import joined_tensors
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig, WeightManifest

_CONFIG: Final = "config.json"
_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_TOKENIZER: Final = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    config: ModelConfig
    manifest: WeightManifest | None
    """None where no tensors are stored or none were asked for."""
    shards: tuple[Path, ...]
    tokenizer: Path | None


def read_folder(folder: Path, *, name: str, with_weights: bool) -> CheckpointFolder:
    """Read the configuration, and with `with_weights` the headers of the tensor files.

    Raises:
        InputError: files that are missing, damaged or contradict each other.
        CapabilityError: an architecture or tensor format that is not supported.
    """
    config_file = folder / _CONFIG
    if not config_file.is_file():
        raise _no_config(folder)
    config = parse_config(read_json_object(config_file), name=name, where=str(config_file))
    shards = _shard_names(folder) if with_weights else {}
    manifest = _manifest(folder, config, shards) if shards else None
    tokenizer = folder / _TOKENIZER
    return CheckpointFolder(
        config=config,
        manifest=manifest,
        shards=tuple(folder / shard for shard in shards),
        tokenizer=tokenizer if tokenizer.is_file() else None,
    )


def _no_config(folder: Path) -> InputError:
    files = sorted(file.name for file in folder.glob("*.gguf"))
    remedy = (
        f"Give the GGUF file itself: {folder / files[0]}"
        if files
        else "Give a Hugging Face folder: config.json, safetensors, tokenizer.json"
    )
    return InputError(f"the folder {folder} holds no config.json", remedy=remedy)


def _shard_names(folder: Path) -> dict[str, set[str] | None]:
    """Shard -> the tensors that the index places in it (None: whatever it holds); sorted."""
    if (folder / _SINGLE).is_file():
        return {_SINGLE: None}
    if (folder / _INDEX).is_file():
        return _indexed_shards(folder / _INDEX)
    if any(folder.glob("*.safetensors")):
        raise InputError(
            f"the folder {folder} holds safetensors, but neither {_SINGLE} nor {_INDEX}"
        )
    pickles = sorted(file.name for file in folder.glob("*.bin"))
    if pickles:
        raise CapabilityError(
            f"the folder {folder} holds its weights as a pickle ({pickles[0]}), which could run "
            "code when it is read, and is refused",
            remedy="Convert it to safetensors",
        )
    return {}


def _indexed_shards(index: Path) -> dict[str, set[str] | None]:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise InputError(f"{index}: 'weight_map' is missing or empty")
    shards: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        # A name with a folder in it could point outside of the checkpoint.
        if not isinstance(shard, str) or not re.fullmatch(r"[\w.-]+\.safetensors", shard):
            raise InputError(
                f"{index}: tensor '{tensor}' lies in {str(shard)[:80]!r}, no file name"
            )
        shards.setdefault(shard, set()).add(tensor)
    missing = sorted(shard for shard in shards if not (index.parent / shard).is_file())
    if missing:
        raise InputError(
            f"{index.parent} is incomplete: {len(missing)} of {len(shards)} shards are missing, "
            f"the first is {missing[0]}"
        )
    return {shard: shards[shard] for shard in sorted(shards)}


def _manifest(
    folder: Path, config: ModelConfig, shards: Mapping[str, set[str] | None]
) -> WeightManifest:
    found: dict[str, StoredTensor] = {}
    for shard, placed in shards.items():
        tensors = read_header(folder / shard).tensors
        _check_placement({tensor.name for tensor in tensors}, placed, folder / shard)
        for tensor in tensors:
            if tensor.name in found:
                raise InputError(f"{folder / shard}: tensor '{tensor.name}' is in two shards")
            found[tensor.name] = tensor
    whole = joined_tensors(config, list(found.values()), where=str(folder))
    return checked_manifest(
        config, whole.decoder, origin="safetensors", where=str(folder), apart=whole.apart
    )


def _check_placement(held: set[str], placed: set[str] | None, shard: Path) -> None:
    if placed is None or held == placed:
        return
    name = min(held ^ placed)
    where = "only in the index" if name in placed else "not in the index"
    raise InputError(f"{shard}: tensor '{name}' is {where}")
