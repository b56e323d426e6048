"""Weights in memory: fused, converted, and accounted for tensor by tensor."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.costs.weight_formats import WeightFormat
from llmprof.costs.weight_layout import laid_out
from llmprof.engine.attention import make_attention
from llmprof.engine.dtypes import ComputeDtype, compute_dtype
from llmprof.engine.linear import Linear
from llmprof.engine.loading import LoadedWeights, load_weights
from llmprof.engine.safetensors_tensors import SafetensorsTensors
from llmprof.errors import InputError
from llmprof.schema.model import TensorSpec, WeightManifest
from llmprof.schema.settings import (
    AttentionKind,
    Quantization,
    WeightDtype,
    WeightSource,
    WeightsSettings,
)
from tests.model_files import (
    Array,
    Packed,
    tiny_config,
    tiny_gguf_metadata,
    tiny_gguf_tensors,
    tiny_hf_tensors,
    write_gguf,
    write_safetensors_folder,
)
from tests.tiny_decoders import DECODERS, LLAMA, TinyDecoder, on_paper, tensors_of, write_decoder

WITH_ALL_KINDS = [one for one in DECODERS if one.name in {"llama", "all_biases", "qwen3_moe"}]
"""Norms, norms of heads, biases, matrices of experts."""


def load(source: ModelSource, weights: WeightSource, dtype: str = "fp32") -> LoadedWeights:
    attention = make_attention(AttentionKind.FLASH, "cpu")
    settings = WeightsSettings(source=weights)
    return load_weights(source, settings, ComputeDtype(dtype), attention=attention, device="cpu")


def floats(linear: Linear) -> torch.Tensor:
    assert isinstance(linear.weight, torch.Tensor)
    return linear.weight


def test_projections_of_one_input_are_one_matrix(tmp_path: Path) -> None:
    decoder = next(decoder for decoder in DECODERS if decoder.name == "all_biases")
    tensors = tensors_of(decoder.config)
    folder = write_safetensors_folder(tmp_path, decoder.config, tensors, shards=2)
    layer = load(resolve_model(str(folder)), WeightSource.FILE).decoder.layers[1]

    def stacked(*names: str) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([tensors[f"model.layers.1.{n}"] for n in names]))

    attention = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    assert torch.equal(floats(layer.qkv), stacked(*(f"{name}.weight" for name in attention)))
    assert layer.qkv.bias is not None
    assert torch.equal(layer.qkv.bias, stacked(*(f"{name}.bias" for name in attention)))
    gate_up, down = layer.feed_forward.projections
    assert torch.equal(floats(gate_up), stacked("mlp.gate_proj.weight", "mlp.up_proj.weight"))
    assert torch.equal(floats(down), stacked("mlp.down_proj.weight"))


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_the_manifest_is_that_of_the_configuration(decoder: TinyDecoder, tmp_path: Path) -> None:
    source = resolve_model(str(write_decoder(tmp_path, decoder)))
    loaded = load(source, WeightSource.FILE, "bf16")
    expected = manifest_from_config(source.config, "bf16")
    by_name = {tensor.name: tensor for tensor in loaded.manifest.tensors}
    assert by_name == {tensor.name: tensor for tensor in expected.tensors}
    assert loaded.manifest.origin == "engine"


def test_a_tied_head_is_the_embedding_itself() -> None:
    model = parse_config(tiny_config(tie_word_embeddings=True), name="tiny")
    decoder = load(on_paper(model), WeightSource.RANDOM).decoder
    assert decoder.head is decoder.embedding


def test_random_weights_are_the_same_every_time_and_keep_activations_in_size() -> None:
    model = parse_config(tiny_config(hidden_size=256, head_dim=64), name="tiny")
    first, again = (load(on_paper(model), WeightSource.RANDOM) for _ in range(2))
    assert first.random
    layer = first.decoder.layers[0]
    assert torch.equal(floats(layer.qkv), floats(again.decoder.layers[0].qkv))
    assert not torch.equal(floats(layer.qkv), floats(first.decoder.layers[1].qkv))
    x = torch.randn(50, 256, generator=torch.Generator().manual_seed(0))
    assert float(layer.qkv(x).std()) == pytest.approx(1, abs=0.1)
    assert torch.equal(first.decoder.final_norm(x[:1]).abs() > 0, x[:1].abs() > 0)


def test_random_biases_are_zero() -> None:
    model = parse_config(tiny_config(attention_bias=True), name="tiny")
    layer = load(on_paper(model), WeightSource.RANDOM).decoder.layers[0]
    assert layer.qkv.bias is not None
    assert not layer.qkv.bias.any()


def test_a_tensor_that_no_shard_holds(tmp_path: Path) -> None:
    folder = write_safetensors_folder(tmp_path, tiny_config(), tiny_hf_tensors())
    reader = SafetensorsTensors(
        [folder / "model.safetensors"], parse_config(LLAMA.config, name="tiny")
    )
    with pytest.raises(InputError, match="'nowhere' is in none"):
        reader.read_into("nowhere", torch.empty(1))


def test_a_shard_that_is_no_safetensors_file(tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(InputError, match=r"bad\.safetensors"):
        SafetensorsTensors([tmp_path / "bad.safetensors"], parse_config(LLAMA.config, name="tiny"))


def stored(**bytes_by_dtype: int) -> WeightManifest:
    return WeightManifest(
        origin="safetensors",
        tensors=tuple(
            TensorSpec(name=dtype, shape=(1,), stored_dtype=dtype, stored_bytes=number)
            for dtype, number in bytes_by_dtype.items()
        ),
    )


@pytest.mark.parametrize(
    ("wanted", "manifest", "expected"),
    [
        (WeightDtype.AS_STORED, stored(fp32=10), ComputeDtype("fp32")),
        (WeightDtype.AS_STORED, stored(fp32=10, fp16=500), ComputeDtype("fp16")),
        (WeightDtype.AS_STORED, stored(fp32=9, q8_0=5), ComputeDtype("bf16", ("q8_0",))),
        (WeightDtype.FP32, stored(bf16=10), ComputeDtype("fp32")),
        (WeightDtype.FP32, stored(q6_k=1, q4_k=1), ComputeDtype("fp32", ("q4_k", "q6_k"))),
    ],
)
def test_the_dtype_of_a_run(
    wanted: WeightDtype, manifest: WeightManifest, expected: ComputeDtype
) -> None:
    assert compute_dtype(wanted, manifest) == expected


def packed_gguf(folder: Path, **types: str) -> ModelSource:
    """A tiny model whose tensors of these names are stored in blocks, the others as floats."""
    tensors: dict[str, Array | Packed] = dict(tiny_gguf_tensors())
    for name, tensor in tiny_gguf_tensors().items():
        kind = types.get(name.removesuffix(".weight").rpartition(".")[2])
        if kind is not None:
            data = quants.quantize(tensor, GGMLQuantizationType[kind])
            tensors[name] = Packed(kind, tensor.shape, data.tobytes())
    path = write_gguf(folder / "tiny.gguf", tiny_gguf_metadata("llama"), tensors)
    return resolve_model(str(path))


def load_packed(
    source: ModelSource, quantization: Quantization, group_size: int | None = None
) -> LoadedWeights:
    settings = WeightsSettings(quantization=quantization, group_size=group_size)
    attention = make_attention(AttentionKind.FLASH, "cpu")
    return load_weights(source, settings, ComputeDtype("fp32"), attention=attention, device="cpu")


def table(linear: Linear) -> torch.Tensor:
    return linear.rows(torch.arange(linear.shape[0]))


def test_weights_in_blocks_are_taken_over_without_a_loss(tmp_path: Path) -> None:
    """Rows of q and k are in another order in the file: so are their scales."""
    source = packed_gguf(
        tmp_path, attn_q="Q4_1", attn_k="Q4_0", attn_v="Q4_1", ffn_down="Q4_0", token_embd="Q8_0"
    )
    floats = load(source, WeightSource.FILE).decoder
    loaded = load_packed(source, Quantization.INT4)
    for ours, theirs in zip(loaded.decoder.layers, floats.layers, strict=True):
        assert ours.qkv.format == WeightFormat("int4", 32, symmetric=False)
        assert torch.equal(table(ours.qkv), table(theirs.qkv))
        downs = (layer.feed_forward.projections[1] for layer in (ours, theirs))
        assert torch.equal(*map(table, downs))
    assert torch.equal(table(loaded.decoder.embedding), table(floats.embedding))
    assert not any("q_proj" in name or "down_proj" in name for name in loaded.rounded)
    assert any("gate_proj" in name for name in loaded.rounded)


def test_a_packed_engine_states_the_bytes_that_costs_predict(tmp_path: Path) -> None:
    source = packed_gguf(tmp_path)
    for quantization in (Quantization.INT8, Quantization.INT4):
        weights = WeightsSettings(quantization=quantization)
        predicted = laid_out(source.config, weights, "fp32")
        loaded = load_packed(source, quantization).manifest
        by_name = {tensor.name: tensor for tensor in loaded.tensors}
        assert by_name == {tensor.name: tensor for tensor in predicted.tensors}


def test_packed_weights_are_close_to_the_floats(tmp_path: Path) -> None:
    source = packed_gguf(tmp_path)
    floats = load(source, WeightSource.FILE).decoder.layers[0].feed_forward.projections[0]
    loaded = (
        load_packed(source, Quantization.INT8, 32).decoder.layers[0].feed_forward.projections[0]
    )
    worst = float((table(loaded) - table(floats)).abs().max())
    assert 0 < worst < float(table(floats).abs().max()) / 200


@pytest.mark.parametrize(
    ("quantization", "group"), [(Quantization.NONE, None), (Quantization.INT8, "channel")]
)
@pytest.mark.parametrize("decoder", WITH_ALL_KINDS, ids=lambda decoder: decoder.name)
def test_all_bytes_of_the_weights_lie_in_what_was_allocated_for_them(
    tmp_path: Path,
    decoder: TinyDecoder,
    quantization: Quantization,
    group: Literal["channel"] | None,
) -> None:
    """So that a checksum over it sees every one of them."""
    source = resolve_model(str(write_decoder(tmp_path / "tiny", decoder)))
    settings = WeightsSettings(quantization=quantization, group_size=group)
    attention = make_attention(AttentionKind.FLASH, "cpu")
    loaded = load_weights(source, settings, ComputeDtype("fp32"), attention=attention, device="cpu")
    allocated = sum(tensor.nbytes for tensor in loaded.allocated)
    assert allocated == loaded.manifest.stored_bytes
