"""From files, or from nothing, to the weights of a decoder in one dtype on one device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from llmprof.architectures.manifest import EMBEDDING, FINAL_NORM, LM_HEAD, expected_tensors
from llmprof.architectures.source import ModelSource
from llmprof.engine.attention import Attention
from llmprof.engine.dtypes import ComputeDtype
from llmprof.engine.gguf_tensors import GgufTensors
from llmprof.engine.linear import Linear
from llmprof.engine.model import Decoder, DecoderLayer
from llmprof.engine.norm import HeadNorm, RmsNorm
from llmprof.engine.random_weights import RandomTensors
from llmprof.engine.safetensors_tensors import SafetensorsTensors
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest
from llmprof.schema.settings import WeightSource


class TensorReader(Protocol):
    """Where tensors come from, by their Hugging Face names."""

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Write a tensor into `out`, which has its shape and any float dtype and device.

        Raises:
            InputError: it is not there, or its data cannot be read.
        """


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    decoder: Decoder
    manifest: WeightManifest
    """Every tensor as it lies in memory, under its own name also where it is part of a larger one."""
    random: bool


def load_weights(
    source: ModelSource,
    weights: WeightSource,
    dtype: ComputeDtype,
    *,
    attention: Attention,
    device: str,
) -> LoadedWeights:
    """Load a model, or make one up.

    Raises:
        InputError: a tensor is missing or cannot be read.
    """
    model = source.config
    reader = open_tensors(source, weights)
    loader = _Loader(model, reader, dtype, device)
    with torch.inference_mode():
        decoder = loader.decoder(attention)
    manifest = WeightManifest(origin="engine", tensors=tuple(loader.specs))
    return LoadedWeights(decoder, manifest, random=weights is WeightSource.RANDOM)


def open_tensors(source: ModelSource, weights: WeightSource) -> TensorReader:
    if weights is WeightSource.RANDOM:
        return RandomTensors()
    if source.kind == "gguf":
        return GgufTensors(source.files[0], source.config)
    return SafetensorsTensors(source.files)


class _Loader:
    """Reads tensors straight to where they stay: no second copy of a fused matrix."""

    def __init__(
        self, model: ModelConfig, reader: TensorReader, dtype: ComputeDtype, device: str
    ) -> None:
        self._model = model
        self._reader = reader
        self._dtype = dtype
        self._device = device
        self._shapes = expected_tensors(model)
        self.specs: list[TensorSpec] = []

    def decoder(self, attention: Attention) -> Decoder:
        embedding = self._tensor([EMBEDDING])
        layers = tuple(self._layer(index) for index in range(self._model.num_hidden_layers))
        final_norm = self._norm(FINAL_NORM)
        tied = self._model.tie_word_embeddings
        head = Linear(embedding if tied else self._tensor([LM_HEAD]))
        return Decoder(self._model, embedding, layers, final_norm, head, attention)

    def _layer(self, index: int) -> DecoderLayer:
        prefix = f"model.layers.{index}."
        attention = f"{prefix}self_attn."
        return DecoderLayer(
            input_norm=self._norm(f"{prefix}input_layernorm.weight"),
            qkv=self._linear([f"{attention}{part}_proj" for part in "qkv"]),
            head_norm=self._head_norm(attention) if self._model.qk_norm else None,
            output=self._linear([f"{attention}o_proj"]),
            post_attention_norm=self._norm(f"{prefix}post_attention_layernorm.weight"),
            gate_up=self._linear([f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj"]),
            down=self._linear([f"{prefix}mlp.down_proj"]),
        )

    def _norm(self, name: str) -> RmsNorm:
        return RmsNorm(self._tensor([name]), self._model.rms_norm_eps)

    def _head_norm(self, attention: str) -> HeadNorm:
        model = self._model
        query = self._tensor([f"{attention}q_norm.weight"])
        key = self._tensor([f"{attention}k_norm.weight"])
        return HeadNorm(
            query, key, model.num_attention_heads, model.num_key_value_heads, model.rms_norm_eps
        )

    def _linear(self, modules: Sequence[str]) -> Linear:
        """Projections of one input, their rows one below the other."""
        weight = self._tensor([f"{module}.weight" for module in modules])
        biases = [f"{module}.bias" for module in modules]
        has_bias = biases[0] in self._shapes
        return Linear(weight, self._tensor(biases) if has_bias else None)

    def _tensor(self, names: Sequence[str]) -> torch.Tensor:
        """One array that holds the named tensors one after the other along the first dimension."""
        rows = [self._shapes[name][0] for name in names]
        whole = torch.empty(
            (sum(rows), *self._shapes[names[0]][1:]), dtype=self._dtype.torch, device=self._device
        )
        for name, part in zip(names, torch.split(whole, rows), strict=True):
            self._reader.read_into(name, part)
            self.specs.append(
                TensorSpec(
                    name=name,
                    shape=tuple(part.shape),
                    stored_dtype=self._dtype.name,
                    stored_bytes=part.nbytes,
                )
            )
        return whole
