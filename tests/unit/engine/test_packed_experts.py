"""Experts in packed formats: the codes of each matrix, wherever it comes from, and their bytes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.costs.weight_layout import laid_out
from llmprof.engine.attention import make_attention
from llmprof.engine.dtypes import ComputeDtype
from llmprof.engine.experts import ExpertFeedForward
from llmprof.engine.loading import LoadedWeights, load_weights
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.safetensors_tensors import SafetensorsTensors
from llmprof.engine.sampling import GreedySampler
from llmprof.schema.cost import ExpertsRead, Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind, Quantization, WeightSource, WeightsSettings
from tests.model_files import write_safetensors_folder
from tests.tiny_decoders import (
    DECODERS,
    PROMPT,
    TinyDecoder,
    load_engine,
    on_paper,
    settings,
    write_decoder,
)

FORMATS = {"int8": "int8_g32", "int4": "int4_g32_asym"}


@pytest.fixture
def decoder() -> TinyDecoder:
    found = next(one for one in DECODERS if one.name == "mixtral")
    return replace(found, config={**found.config, "intermediate_size": 96})


def load(source: ModelSource, quantization: Quantization, where: WeightSource) -> LoadedWeights:
    return load_weights(
        source,
        WeightsSettings(source=where, quantization=quantization),
        ComputeDtype("fp32"),
        attention=make_attention(AttentionKind.FLASH, "cpu"),
        device="cpu",
    )


def experts_of(loaded: LoadedWeights) -> ExpertFeedForward:
    found = loaded.decoder.layers[1].feed_forward
    assert isinstance(found, ExpertFeedForward)
    return found


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_each_expert_is_close_to_its_floats(
    decoder: TinyDecoder, quantization: str, tmp_path: Path
) -> None:
    source = resolve_model(str(write_decoder(tmp_path, decoder)))
    packed = load(source, Quantization(quantization), WeightSource.FILE)
    floats = load(source, Quantization.NONE, WeightSource.FILE)
    x = torch.eye(32)
    for ours, exact in zip(experts_of(packed).gate_up, experts_of(floats).gate_up, strict=True):
        assert isinstance(ours.weight, PackedWeight)
        assert ours.format.name == FORMATS[quantization]
        step = 0.2 * 6 / {"int8": 254, "int4": 15}[quantization]  # six deviations of a group's 32
        assert float((ours(x) - exact(x)).abs().max()) < step
    assert isinstance(experts_of(packed).router.weight, torch.Tensor)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_the_layout_is_the_one_on_paper(decoder: TinyDecoder, quantization: str) -> None:
    model = on_paper(load_model(decoder))
    loaded = load(model, Quantization(quantization), WeightSource.RANDOM)
    weights = WeightsSettings(quantization=Quantization(quantization))
    paper = laid_out(model.config, weights, "fp32")
    assert {one.name: one for one in loaded.manifest.tensors} == {
        one.name: one for one in paper.tensors
    }
    held = sum(
        one.weight.nbytes
        for linears in (experts_of(loaded).gate_up, experts_of(loaded).down)
        for one in linears
    )
    planned = sum(one.stored_bytes for one in paper.tensors if ".layers.1.mlp.experts." in one.name)
    assert held == planned


def load_model(decoder: TinyDecoder) -> ModelConfig:
    return parse_config(decoder.config, name="tiny")


def test_an_engine_generates_with_packed_experts(decoder: TinyDecoder, tmp_path: Path) -> None:
    path = write_decoder(tmp_path, decoder)
    tokens = [
        load_engine(settings(path, weights={"quantization": kind}))
        .generate(PROMPT, GreedySampler(), max_tokens=8)
        .ids
        for kind in ("none", "int8")
    ]
    assert tokens[0][:2] == tokens[1][:2]
    assert len(set(tokens[1])) > 1


def test_only_experts_with_many_rows_are_unpacked(decoder: TinyDecoder) -> None:
    """64 tokens pass 2 of 4 experts each: 32 rows per product where all four are read."""
    model = load_model(decoder)
    weights = laid_out(model, WeightsSettings(quantization=Quantization.INT8), "bf16")
    shape = StepShape(
        phase=Phase.PREFILL,
        sequences=(SequenceShape(new_tokens=64, cached_tokens=0),),
        logit_rows=1,
    )
    read = (ExpertsRead(tokens=64, experts=4.0),)

    def copied(packed_rows: int) -> float:
        options = CostOptions(packed_rows=packed_rows, experts_read=read)
        ops = {one.name: one for one in step_cost(model, weights, shape, options).ops}
        return ops["down_projection.experts"].traffic.copies

    assert copied(32) == 0
    assert copied(31) == 2 * 2 * 2 * 4 * 32 * 96  # written and read, 2 bytes, 2 layers, 4 experts


def test_one_expert_of_a_merged_tensor(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.experts.down_proj.weight"
    merged = np.arange(4 * 3 * 2, dtype=np.float32).reshape(4, 3, 2)
    write_safetensors_folder(tmp_path, {}, {name: merged})
    out = torch.empty(3, 2)
    decoder = next(one for one in DECODERS if one.name == "qwen3_moe")
    model = parse_config(decoder.config, name="tiny")
    SafetensorsTensors([tmp_path / "model.safetensors"], model).read_into(name, out, 2)
    assert torch.equal(out, torch.from_numpy(merged[2]))
