"""Checkpoints that store their projections in fp8, in the layouts of three tools."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from llmprof.architectures.source import resolve_model
from llmprof.engine.attention import make_attention
from llmprof.engine.dtypes import ComputeDtype
from llmprof.engine.linear import Linear
from llmprof.engine.loading import LoadedWeights, load_weights
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.runnable import check_model
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.settings import AttentionKind, Quantization, WeightsSettings
from tests.model_files import Array, tiny_config, tiny_hf_tensors, write_safetensors_folder
from tests.packed_weights import e4m3

CHANNELS = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
        }
    },
}
WHOLE = {"quant_method": "fp8", "activation_scheme": "static"}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 24]}
K_PROJ = "model.layers.0.self_attn.k_proj.weight"


def bf16(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def scale_of(
    rows: int, columns: int, packing: Mapping[str, object], drawn: np.random.Generator
) -> tuple[str, Array, npt.NDArray[np.float64]]:
    """Name, as stored, and for each weight; powers of two, which every dtype holds."""

    def powers(*shape: int) -> npt.NDArray[np.float32]:
        return (2.0 ** drawn.integers(-9, -6, shape)).astype(np.float32)

    if packing is CHANNELS:
        scale = powers(rows, 1)
        return "weight_scale", bf16(scale), np.broadcast_to(scale, (rows, columns)).astype(float)
    if packing is WHOLE:
        scale = powers()
        return "weight_scale", scale, np.full((rows, columns), float(scale))
    scale = powers(-(-rows // 16), -(-columns // 24))
    wide = np.repeat(np.repeat(scale, 16, 0)[:rows], 24, 1)[:, :columns]
    return "weight_scale_inv", scale, wide.astype(float)


def checkpoint(
    folder: Path, packing: Mapping[str, object], **changes: Array | None
) -> tuple[Path, dict[str, npt.NDArray[np.float64]]]:
    """A folder, and the weights of its projections; `changes` replace tensors or leave them out."""
    drawn = np.random.default_rng(3)
    tensors: dict[str, Array] = {}
    weights = {}
    for name, tensor in tiny_hf_tensors().items():
        tensors[name] = tensor
        if "_proj" not in name:
            continue
        codes = drawn.integers(256, size=tensor.shape)
        codes[codes & 0x7F == 0x7F] = 0
        rows, columns = tensor.shape
        part, stored, wide = scale_of(rows, columns, packing, drawn)
        tensors[name] = codes.astype(np.uint8)
        tensors[name.removesuffix("weight") + part] = np.asarray(stored)
        if packing is WHOLE:
            tensors[name.removesuffix("weight") + "input_scale"] = np.ones((), np.float32)
        weights[name] = e4m3(codes) * wide
    for name, change in changes.items():
        if change is None:
            del tensors[name]
        else:
            tensors[name] = change
    config = tiny_config(quantization_config=packing)
    return write_safetensors_folder(folder, config, tensors), weights


def load(path: Path, quantization: Quantization) -> LoadedWeights:
    source = resolve_model(str(path))
    check_model(source)
    attention = make_attention(AttentionKind.FLASH, "cpu")
    weights = WeightsSettings(quantization=quantization)
    return load_weights(source, weights, ComputeDtype("fp32"), attention=attention, device="cpu")


def numbers(linear: Linear) -> torch.Tensor:
    return linear.rows(torch.arange(linear.shape[0])).double()


def qkv(weights: Mapping[str, npt.NDArray[np.float64]]) -> torch.Tensor:
    names = (K_PROJ.replace("k_proj", f"{part}_proj") for part in "qkv")
    return torch.from_numpy(np.concatenate([weights[name] for name in names]))


@pytest.mark.parametrize("packing", [CHANNELS, WHOLE, BLOCKS], ids=["rows", "matrix", "blocks"])
def test_as_floats(packing: Mapping[str, object], tmp_path: Path) -> None:
    path, weights = checkpoint(tmp_path, packing)
    loaded = load(path, Quantization.NONE)
    assert torch.equal(numbers(loaded.decoder.layers[0].qkv), qkv(weights))


@pytest.mark.parametrize("packing", [CHANNELS, WHOLE], ids=["rows", "matrix"])
def test_scales_of_rows_are_taken_over(packing: Mapping[str, object], tmp_path: Path) -> None:
    path, weights = checkpoint(tmp_path, packing)
    loaded = load(path, Quantization.FP8)
    projection = loaded.decoder.layers[0].qkv
    assert isinstance(projection.weight, PackedWeight)
    assert torch.equal(numbers(projection), qkv(weights))
    assert not any("_proj" in name for name in loaded.rounded)
    assert "lm_head.weight" in loaded.rounded  # stored in floats


def test_blocks_are_rounded_again_and_named(tmp_path: Path) -> None:
    path, weights = checkpoint(tmp_path, BLOCKS)
    loaded = load(path, Quantization.FP8)
    expected = qkv(weights)
    assert K_PROJ in loaded.rounded
    largest = expected.abs().amax(1, keepdim=True)
    error = (numbers(loaded.decoder.layers[0].qkv) - expected).abs()
    assert (error <= torch.maximum(expected.abs() / 16, largest / 448 / 1024) * 1.0001).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({K_PROJ: np.full((16, 32), 0x7F, np.uint8)}, "holds codes that are not numbers"),
        ({f"{K_PROJ}_scale": None}, "has no scale beside it"),
        ({f"{K_PROJ}_scale": np.ones((8, 2), np.float32)}, r"has scales \[8, 2\]"),
    ],
)
@pytest.mark.parametrize("quantization", [Quantization.NONE, Quantization.FP8])
def test_damaged_ones(
    changes: dict[str, Array | None], reason: str, quantization: Quantization, tmp_path: Path
) -> None:
    path, _ = checkpoint(tmp_path, CHANNELS, **changes)
    with pytest.raises(InputError, match=reason):
        load(path, quantization)


def test_other_formats_stay_refused(tmp_path: Path) -> None:
    packing = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    path = write_safetensors_folder(
        tmp_path, tiny_config(quantization_config=packing), tiny_hf_tensors()
    )
    with pytest.raises(CapabilityError, match="'gptq' cannot be loaded"):
        check_model(resolve_model(str(path)))
