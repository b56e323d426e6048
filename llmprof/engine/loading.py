"""From files, or from nothing, to the weights of a decoder on one device."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch

from llmprof.architectures.manifest import EMBEDDING, FINAL_NORM, LM_HEAD, expected_tensors
from llmprof.architectures.source import ModelSource
from llmprof.costs.tensor_parallel import shard_of
from llmprof.costs.weight_formats import WeightFormat
from llmprof.costs.weight_layout import format_of, spec_of
from llmprof.engine.activation import gated, gated_by_gelu
from llmprof.engine.attention import Attention
from llmprof.engine.dtypes import ComputeDtype
from llmprof.engine.experts import ExpertFeedForward, SharedExpert
from llmprof.engine.feed_forward import DenseFeedForward, FeedForward, Gate
from llmprof.engine.gguf_tensors import GgufTensors
from llmprof.engine.kernels.memory import WeightMemory
from llmprof.engine.linear import Linear
from llmprof.engine.model import Decoder, DecoderLayer
from llmprof.engine.norm import HeadNorm, RmsNorm
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.quantization.rounding import quantize_into
from llmprof.engine.random_weights import RandomTensors
from llmprof.engine.rank_group import RankGroup
from llmprof.engine.rank_tensors import RankTensors, check_groups_uncut
from llmprof.engine.rope import EVERYWHERE, WITHIN_WINDOW
from llmprof.engine.routing import ExpertChoice, RoutedExperts, RouterChoice
from llmprof.engine.safetensors_tensors import SafetensorsTensors
from llmprof.schema.layers import ExpertMlp, SoftmaxAttention
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest
from llmprof.schema.settings import WeightSource, WeightsSettings

_NORMS_AROUND: Final = 4
"""Before and after attention, before and after the feed-forward part (Gemma, GLM-4)."""


class TensorReader(Protocol):
    """Where tensors come from, by their Hugging Face names."""

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        """Write a tensor into `out`, which has its shape and any float dtype and device.

        `expert`: of the matrices of all experts only that one.

        Raises:
            InputError: it is not there, or its data cannot be read.
        """

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        """Copy a packed tensor as it is stored; False where it is not in the format of `out`.

        Raises:
            InputError: it is not there, or its data cannot be read.
        """


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    decoder: Decoder
    manifest: WeightManifest
    """Every tensor as it lies in memory, under its own name also where it is part of a larger one."""
    random: bool
    rounded: tuple[str, ...]
    """Tensors whose codes were made here; packed ones that are not named came as they are."""
    routed: RoutedExperts = field(default_factory=RoutedExperts)
    """Told by layers with experts how many of them each step read."""
    allocated: tuple[torch.Tensor, ...] = ()
    """All that the weights lie in, in the order of loading."""


def load_weights(
    source: ModelSource,
    weights: WeightsSettings,
    dtype: ComputeDtype,
    *,
    attention: Attention,
    device: str,
    search: bool = True,
    choice: ExpertChoice | None = None,
    ranks: RankGroup | None = None,
) -> LoadedWeights:
    """Load a model, or make one up, in the format that the settings ask for.

    `search=False` rounds int4 weights plainly (see `quantize_into`), as it is always done with
    random ones: they are only read. `choice` says which experts tokens pass: by default their
    router does. Of a model that `ranks` share out, the part of this one is loaded.

    Raises:
        InputError: a tensor is missing or cannot be read.
        CapabilityError: a matrix that does not fit the format.
    """
    random = weights.source is WeightSource.RANDOM
    reader = open_tensors(source, weights.source)
    model = source.config
    if ranks is not None:
        check_groups_uncut(model, weights, ranks.size)
        reader = RankTensors(reader, model, ranks.rank, ranks.size)
        model = shard_of(model, ranks.size)
    loader = _Loader(
        model,
        reader,
        weights,
        dtype,
        device,
        search=search and not random,
        choice=choice or RouterChoice(),
        ranks=ranks,
    )
    with torch.inference_mode():
        decoder = loader.decoder(attention)
    manifest = WeightManifest(origin="engine", tensors=tuple(loader.specs))
    return LoadedWeights(
        decoder,
        manifest,
        random,
        tuple(loader.rounded),
        loader.routed,
        tuple(loader.allocated),
    )


def open_tensors(source: ModelSource, weights: WeightSource) -> TensorReader:
    if weights is WeightSource.RANDOM:
        return RandomTensors()
    if source.kind == "gguf":
        return GgufTensors(source.files[0], source.config)
    return SafetensorsTensors(source.files, source.config)


class _Loader:
    """Reads tensors straight to where they stay: no second copy of a fused matrix."""

    def __init__(
        self,
        model: ModelConfig,
        reader: TensorReader,
        weights: WeightsSettings,
        dtype: ComputeDtype,
        device: str,
        *,
        search: bool,
        choice: ExpertChoice,
        ranks: RankGroup | None,
    ) -> None:
        self._model = model
        self._reader = reader
        self._weights = weights
        self._dtype = dtype
        self._device = device
        self._search = search
        self._choice = choice
        self._ranks = ranks
        self.routed = RoutedExperts()
        self._shapes = expected_tensors(model)
        self._memory = WeightMemory()
        self.specs: list[TensorSpec] = []
        self.rounded: list[str] = []
        self.allocated: list[torch.Tensor] = []

    def decoder(self, attention: Attention) -> Decoder:
        embedding = self._linear([EMBEDDING.removesuffix(".weight")])
        layers = tuple(self._layer(index) for index in range(self._model.num_hidden_layers))
        final_norm = self._norm(FINAL_NORM)
        tied = self._model.tie_word_embeddings
        head = embedding if tied else self._linear([LM_HEAD.removesuffix(".weight")])
        has_experts = any(layer.mlp.kind == "experts" for layer in self._model.layers)
        choice = self._choice if has_experts else None
        return Decoder(
            self._model, embedding, layers, final_norm, head, attention, choice, self._ranks
        )

    def _layer(self, index: int) -> DecoderLayer:
        prefix = f"model.layers.{index}."
        attention = f"{prefix}self_attn."
        shape = self._model.layers[index]
        fused = isinstance(shape.attention, SoftmaxAttention) and shape.attention.fused
        within = isinstance(shape.attention, SoftmaxAttention) and shape.attention.window
        around = len(shape.norms) == _NORMS_AROUND
        input_norm, *others = (f"{prefix}{name}.weight" for name in shape.norms)
        after_attention = others.pop(0) if around else None
        return DecoderLayer(
            input_norm=self._norm(input_norm),
            qkv=self._linear(
                [f"{attention}{part}_proj" for part in (("qkv",) if fused else "qkv")]
            ),
            head_norm=self._head_norm(attention) if self._model.qk_norm else None,
            output=self._linear([f"{attention}o_proj"]),
            norm_after_attention=self._norm(after_attention) if after_attention else None,
            feed_forward_norm=self._norm(others[0]),
            feed_forward=self._feed_forward(index, others[1:]),
            turn=WITHIN_WINDOW if within and self._model.window_rope_theta else EVERYWHERE,
        )

    def _feed_forward(self, layer: int, norm_after: Sequence[str]) -> FeedForward:
        prefix = f"model.layers.{layer}.mlp."
        shape = self._model.layers[layer].mlp
        gate = gated_by_gelu if self._model.activation == "gelu_tanh" else gated
        if isinstance(shape, ExpertMlp):
            return ExpertFeedForward(
                router=self._linear([f"{prefix}router"]),
                gate_up=self._experts(f"{prefix}experts.", ("gate_proj", "up_proj")),
                down=self._experts(f"{prefix}experts.", ("down_proj",)),
                shared=self._shared_expert(prefix, gate)
                if shape.shared_intermediate_size
                else None,
                gate=gate,
                per_token=shape.experts_per_token,
                normalized=shape.normalized,
                layer=layer,
                choice=self._choice,
                routed=self.routed,
                ranks=self._ranks,
            )
        parts = ("gate_up_proj",) if shape.fused else ("gate_proj", "up_proj")
        return DenseFeedForward(
            gate_up=self._linear([f"{prefix}{part}" for part in parts]),
            down=self._linear([f"{prefix}down_proj"]),
            gate=gate,
            activation=self._model.activation,
            norm_after=self._norm(norm_after[0]) if norm_after else None,
            ranks=self._ranks,
        )

    def _shared_expert(self, prefix: str, gate: Gate) -> SharedExpert:
        inner = f"{prefix}shared_experts."
        return SharedExpert(
            gate=gate,
            gate_up=self._linear([f"{inner}gate_proj", f"{inner}up_proj"]),
            down=self._linear([f"{inner}down_proj"]),
            share=self._linear([f"{prefix}shared_expert_gate"]),
        )

    def _experts(self, prefix: str, parts: Sequence[str]) -> tuple[Linear, ...]:
        """A matrix for each expert, its parts one below the other, and all of them in one piece."""
        names = [f"{prefix}{part}.weight" for part in parts]
        experts, _, columns = self._shapes[names[0]]
        rows = [self._shapes[name][1] for name in names]
        fmt = format_of(names[0], self._shapes[names[0]], self._weights, self._dtype.name)
        whole = self._empty(fmt, experts * sum(rows), columns)
        self.specs += [spec_of(name, self._shapes[name], fmt) for name in names]
        found, start = [], 0
        for expert in range(experts):
            found.append(Linear(_rows(whole, start, sum(rows))))
            for name, count in zip(names, rows, strict=True):
                self._read(name, _rows(whole, start, count), expert)
                start += count
        return tuple(found)

    def _norm(self, name: str) -> RmsNorm:
        model = self._model
        return RmsNorm(self._vector([name]), model.rms_norm_eps, model.norm_gain_offset)

    def _head_norm(self, attention: str) -> HeadNorm:
        model = self._model
        query = self._vector([f"{attention}q_norm.weight"])
        key = self._vector([f"{attention}k_norm.weight"])
        return HeadNorm(
            query,
            key,
            model.num_attention_heads,
            model.num_key_value_heads,
            model.rms_norm_eps,
            model.norm_gain_offset,
        )

    def _linear(self, modules: Sequence[str]) -> Linear:
        """Projections of one input, their rows one below the other."""
        weight = self._matrix([f"{module}.weight" for module in modules])
        biases = [f"{module}.bias" for module in modules]
        has_bias = biases[0] in self._shapes
        return Linear(weight, self._vector(biases) if has_bias else None)

    def _matrix(self, names: Sequence[str]) -> torch.Tensor | PackedWeight:
        rows = [self._shapes[name][0] for name in names]
        columns = self._shapes[names[0]][1]
        fmt = format_of(names[0], self._shapes[names[0]], self._weights, self._dtype.name)
        whole = self._empty(fmt, sum(rows), columns)
        start = 0
        for name, count in zip(names, rows, strict=True):
            self._read(name, _rows(whole, start, count))
            self.specs.append(spec_of(name, (count, columns), fmt))
            start += count
        return whole

    def _empty(self, fmt: WeightFormat, rows: int, columns: int) -> torch.Tensor | PackedWeight:
        if fmt.packed:
            return PackedWeight.empty(fmt, self._dtype.torch, rows, columns, self._allocate)
        return self._allocate((rows, columns), dtype=self._dtype.torch)

    def _read(
        self, name: str, part: torch.Tensor | PackedWeight, expert: int | None = None
    ) -> None:
        """Into floats, or into codes: as they are stored, else rounded here."""
        if isinstance(part, torch.Tensor):
            self._reader.read_into(name, part, expert)
        elif not self._reader.take_over(name, part, expert):
            weights = torch.empty(part.shape, dtype=torch.float32, device=part.device)
            self._reader.read_into(name, weights, expert)
            quantize_into(weights, part, search=self._search)
            if name not in self.rounded:
                self.rounded.append(name)

    def _vector(self, names: Sequence[str]) -> torch.Tensor:
        """One array that holds the named vectors one after the other."""
        sizes = [self._shapes[name][0] for name in names]
        whole = self._allocate((sum(sizes),), dtype=self._dtype.torch)
        for name, part in zip(names, torch.split(whole, sizes), strict=True):
            self._reader.read_into(name, part)
            self.specs.append(spec_of(name, tuple(part.shape), WeightFormat(self._dtype.name)))
        return whole

    def _allocate(self, shape: tuple[int, ...], /, *, dtype: torch.dtype) -> torch.Tensor:
        if self._device == "cpu":
            self.allocated.append(self._memory.empty(shape, dtype=dtype))
        else:
            self.allocated.append(torch.empty(shape, dtype=dtype, device=self._device))
        return self.allocated[-1]


def _rows(
    whole: torch.Tensor | PackedWeight, start: int, count: int
) -> torch.Tensor | PackedWeight:
    """A view of adjacent rows."""
    if isinstance(whole, PackedWeight):
        return whole.part(start, count)
    return whole.narrow(0, start, count)
