"""Two-layer decoders whose logits are known from another implementation, and engines that run them."""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.manifest import expected_tensors, manifest_from_config
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.engine.engine import Engine
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import RunConfig
from tests.model_files import write_safetensors_folder

Tensors = dict[str, npt.NDArray[np.generic]]

_DATA = Path(__file__).parent / "data" / "tiny_decoders.json"


@dataclass(frozen=True, slots=True)
class TinyDecoder:
    name: str
    config: Mapping[str, object]
    logits: tuple[float, ...]
    """At the last token of `PROMPT`."""
    greedy_ids: tuple[int, ...]


def _read() -> tuple[tuple[int, ...], tuple[TinyDecoder, ...]]:
    data = json.loads(_DATA.read_text())
    decoders = tuple(
        TinyDecoder(name, case["config"], tuple(case["logits"]), tuple(case["greedy_ids"]))
        for name, case in data["cases"].items()
    )
    return tuple(data["prompt_ids"]), decoders


PROMPT, DECODERS = _read()
LLAMA = DECODERS[0]


def tensors_of(config: Mapping[str, object]) -> Tensors:
    """The weights that the known logits belong to: each tensor drawn from a seed of its name."""
    shapes = expected_tensors(parse_config(config, name="tiny"))
    return {name: _tensor(name, shape) for name, shape in shapes.items()}


def _tensor(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
    drawn = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape) * 0.2
    is_gain = len(shape) == 1 and "norm" in name
    return (drawn + is_gain).astype(np.float32)


def write_decoder(folder: Path, decoder: TinyDecoder, *, shards: int = 1) -> Path:
    tensors = {
        own: tensor
        for name, whole in tensors_of(decoder.config).items()
        for own, tensor in _as_published(name, whole, str(decoder.config["model_type"]))
    }
    return write_safetensors_folder(folder, decoder.config, tensors, shards=shards)


_MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2", "mlp.": "block_sparse_moe."}


def _as_published(
    name: str, tensor: npt.NDArray[np.generic], model_type: str
) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    """Under the names of the family's checkpoints, which keep each expert by itself."""
    name = name.replace("mlp.router", "mlp.gate")
    if model_type == "mixtral":
        for usual, own in _MIXTRAL.items():
            name = name.replace(usual, own)
    if model_type == "qwen2_moe":
        name = name.replace("shared_experts", "shared_expert")
    if ".experts." not in name:
        yield name, tensor
        return
    for number, expert in enumerate(tensor):
        yield name.replace(".experts.", f".experts.{number}."), expert


def settings(path: Path | str = "any", /, **groups: Mapping[str, object]) -> RunConfig:
    """`attention={"kind": "standard"}`, ...; a workload that fits the tiny models by default."""
    workload = {"prompt_tokens": len(PROMPT), "output_tokens": 8, **groups.pop("workload", {})}
    return RunConfig.model_validate({"model": str(path), "workload": workload, **groups})


def on_paper(model: ModelConfig) -> ModelSource:
    """A shape without files, for random weights."""
    manifest = manifest_from_config(model, "bf16")
    return ModelSource(model.name, "config", model, manifest, (), None, has_weights=False)


def load_engine(config: RunConfig) -> Engine:
    """On one CPU thread."""
    source = resolve_model(config.model, weights=config.weights.source)
    return Engine.load(source, config, device="cpu", threads=1, host_available_bytes=2**33)
