"""What the MODEL argument means: a shape, the tensors that store it, and where the files are."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from llmprof.architectures.checkpoint_folder import read_folder
from llmprof.architectures.config_json import parse_config
from llmprof.architectures.gguf_header import MAGIC, read_header
from llmprof.architectures.gguf_model import config_from_header, manifest_from_header
from llmprof.architectures.hub import download_snapshot
from llmprof.architectures.installed_model import INSTALLED_MODEL, installed_model_file
from llmprof.architectures.json_file import read_json_object
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.architectures.presets import preset_config, preset_names
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import RunConfig, WeightSource, WeightsSettings

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_FAMILY: Final = re.compile(r"[-.\d]")
_MOST_NEAR: Final = 3
_ONE_TYPO: Final = 0.95
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_FILE_SUFFIXES: Final = (*_PICKLES, ".gguf", ".safetensors", ".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model as found: nothing of its weights is in memory yet."""

    name: str
    kind: Literal["gguf", "folder", "config"]
    config: ModelConfig
    manifest: WeightManifest
    """What the files store; for a bare configuration (origin `config`) what they would store."""
    files: tuple[Path, ...]
    """The files that hold the tensors: one GGUF file, or the safetensors shards in order."""
    tokenizer: Path | None
    """tokenizer.json, or the GGUF file that carries its own; None where there is none."""
    has_weights: bool
    """False for a bare configuration, and where random weights were asked for."""


def resolve_model(model: str, *, weights: WeightSource = WeightSource.FILE) -> ModelSource:
    """Find a model: a path, the installed demo model, a preset or a hub id, in this order.

    With random weights only configurations and tokenizers are read; no tensor file is touched
    except the header of a GGUF file, which is its configuration.

    Raises:
        InputError: nothing found, or files that are missing, damaged or contradict each other.
        CapabilityError: an architecture or format that is not supported.
    """
    try:
        path = Path(model).expanduser()
        if model.strip() and path.exists():
            return _from_path(path, weights)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder to expand
        raise InputError(f"cannot read '{model}': {error}") from error
    name = model.lower()
    if name == INSTALLED_MODEL:
        return _from_gguf(installed_model_file(), weights, name=INSTALLED_MODEL)
    if name in preset_names():
        return _from_config(preset_config(name))
    if _HUB_ID.fullmatch(model) and path.suffix.lower() not in _FILE_SUFFIXES:
        return _from_folder(download_snapshot(model, weights), weights, name=model)
    raise _not_found(model)


def require_weights(source: ModelSource, settings: WeightsSettings) -> None:
    """Call before loading.

    Raises:
        InputError: weights are to come from a file, and the source is a bare configuration.
    """
    if settings.source is WeightSource.FILE and not source.has_weights:
        raise InputError(
            f"'{source.name}' is a configuration without weights",
            remedy="Add --set weights.source=random, or give a GGUF file or a checkpoint folder",
        )


def check_source(config: RunConfig) -> None:
    """Refuse at once what could not be loaded: torch, which this does not need, takes seconds to import.

    Raises:
        InputError, CapabilityError: as `resolve_model` and `require_weights`.
    """
    require_weights(resolve_model(config.model, weights=config.weights.source), config.weights)


def _from_path(path: Path, weights: WeightSource) -> ModelSource:
    if path.is_dir():
        return _from_folder(path, weights, name=_text(path.resolve().name))
    if not path.is_file():
        raise InputError(f"{path} is neither a file nor a folder")
    suffix = path.suffix.lower()
    if suffix == ".gguf" or _starts_like_gguf(path):
        return _from_gguf(path, weights, name=_text(path.stem))
    if suffix == ".json":
        name = _text(path.resolve().parent.name if path.name == "config.json" else path.stem)
        tree = read_json_object(path)
        if "model_type" not in tree:
            raise InputError(
                f"{path} is no config.json of a model: the field 'model_type' is missing",
                remedy="Give the config.json of a checkpoint, its folder, or a GGUF file",
            )
        return _from_config(parse_config(tree, name=name, where=str(path)))
    if suffix in _PICKLES:
        raise CapabilityError(
            f"{path} is a pickle, which could run code when it is read, and is refused",
            remedy="Convert it to safetensors",
        )
    if suffix == ".safetensors":
        raise InputError(
            f"{path} holds tensors without their configuration",
            remedy=f"Give the folder with its config.json: {path.parent}",
        )
    raise InputError(f"{path} is neither a GGUF file nor a config.json nor a checkpoint folder")


def _text(name: str) -> str:
    """A file name may hold bytes that are no text; a document may not."""
    return name.encode(errors="replace").decode()


def _starts_like_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _from_gguf(path: Path, weights: WeightSource, *, name: str) -> ModelSource:
    header = read_header(path)
    config = config_from_header(header, name=name)
    stored = weights is WeightSource.FILE
    return ModelSource(
        name=name,
        kind="gguf",
        config=config,
        manifest=manifest_from_header(header, config) if stored else paper_manifest(config),
        files=(path,) if stored else (),
        tokenizer=path if "tokenizer.ggml.tokens" in header.metadata else None,
        has_weights=stored,
    )


def _from_folder(folder: Path, weights: WeightSource, *, name: str) -> ModelSource:
    found = read_folder(folder, name=name, with_weights=weights is WeightSource.FILE)
    return ModelSource(
        name=name,
        kind="folder" if found.manifest else "config",
        config=found.config,
        manifest=found.manifest or paper_manifest(found.config),
        files=found.shards,
        tokenizer=found.tokenizer,
        has_weights=found.manifest is not None,
    )


def _from_config(config: ModelConfig) -> ModelSource:
    return ModelSource(
        name=config.name,
        kind="config",
        config=config,
        manifest=paper_manifest(config),
        files=(),
        tokenizer=None,
        has_weights=False,
    )


def _not_found(model: str) -> InputError:
    path = Path(model)
    if path.suffix.lower() in _FILE_SUFFIXES or model.startswith((".", "/", "~")):
        return InputError(f"there is no file or folder '{model}'")
    return InputError(
        f"'{model}' is no file, folder, hub id (owner/name) or preset",
        remedy=_nearest([*preset_names(), INSTALLED_MODEL], model.lower()),
    )


def _nearest(names: Sequence[str], wanted: str) -> str:
    """Those that begin so, else the likeliest misspelled, else how the presets are called."""
    begin_so = [name for name in names if len(wanted) > 1 and name.startswith(wanted)]
    near = (
        begin_so
        or difflib.get_close_matches(wanted, names, n=1, cutoff=_ONE_TYPO)
        or difflib.get_close_matches(wanted, names, n=_MOST_NEAR)
    )
    if near:
        *others, last = [f"'{name}'" for name in near]
        return f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
    families = dict.fromkeys(_FAMILY.split(name)[0] for name in names)
    return f"Presets begin with {', '.join(families)}: such a beginning lists them"
