"""Sums that a reader can do with a published config.json and a pencil; none of them asks llmprof."""

from typing import Any

import pytest

from llmprof.analysis.crossings import context_crossing
from llmprof.analysis.prediction_target import make_target
from llmprof.architectures.config_json import parse_config
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.architectures.presets import preset_config
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.costs.tensor_parallel import weight_bytes_per_device
from llmprof.costs.weight_layout import laid_out
from llmprof.errors import InputError
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.settings import RunConfig, WeightsSettings
from tests.public_models import public_config

# Llama-3.1-8B: 32 layers of q and o [4096, 4096], k and v [1024, 4096], gate and up [14336, 4096],
# down [4096, 14336]; embedding and head [128256, 4096]; two norms a layer and the last one.
LINEAR = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
MATRICES = 32 * 7
ROWS = 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096)
COLUMNS = 32 * (6 * 4096 + 14336)
TABLE = 128_256 * 4096
NORMS = 65 * 4096
FLOATS = 2 * (2 * TABLE + NORMS)
"""Bytes of what the tools leave in bf16."""


def compressed(fmt: str, **weights: object) -> dict[str, object]:
    return {
        "quant_method": "compressed-tensors",
        "format": fmt,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True}
CHECKPOINTS = {
    # codes, a scale of 2 bytes and a zero of 4 bits for each group of a row, a group for each column
    "gptq": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        LINEAR // 2 + LINEAR // 128 * 2 + LINEAR // 256 + 4 * COLUMNS + FLOATS,
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
        LINEAR // 2 + LINEAR // 128 * 2 + LINEAR // 256 + FLOATS,
    ),
    # a scale of 4 bytes for 64 codes and a map of 16 numbers; or scales of a byte, 256 to a scale
    "nf4": (NF4, LINEAR // 2 + LINEAR // 64 * 4 + MATRICES * 64 + FLOATS),
    "nf4 twice": (
        NF4 | {"bnb_4bit_use_double_quant": True},
        LINEAR // 2 + LINEAR // 64 + LINEAR // 64 // 256 * 4 + MATRICES * (64 + 1024) + FLOATS,
    ),
    "llm.int8": (
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        LINEAR + 4 * ROWS + MATRICES + FLOATS,
    ),
    "fp8 in blocks": (
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        LINEAR + LINEAR // 128**2 * 4 + FLOATS,
    ),
    "fp8 static": (
        {"quant_method": "fp8", "activation_scheme": "static"},
        LINEAR + MATRICES * (4 + 4) + FLOATS,
    ),
    "fp8 per channel": (
        compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
        LINEAR + 2 * ROWS + FLOATS,
    ),
    "w8a8": (
        compressed("int-quantized", num_bits=8, type="int", strategy="channel"),
        LINEAR + 2 * ROWS + FLOATS,
    ),
    "w4a16": (
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=128),
        LINEAR // 2 + LINEAR // 128 * 2 + MATRICES * 16 + FLOATS,
    ),
}


def test_the_parts_are_the_published_whole() -> None:
    assert LINEAR + 2 * TABLE + NORMS == 8_030_261_248


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_of_llama_8b(name: str) -> None:
    packing, expected = CHECKPOINTS[name]
    config = public_config("Llama-3.1-8B", quantization_config=packing)
    assert paper_manifest(parse_config(config, name=name)).stored_bytes == expected


HEAD = 2 * TABLE * 34 // 32 + 2 * NORMS
"""Embedding and head in int8, 32 codes to a scale of 2 bytes, and norms in bf16."""


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, 2 * 8_030_261_248),
        ({"quantization": "int8"}, LINEAR * 34 // 32 + HEAD),
        (
            {"quantization": "int8", "group_size": "channel"},
            LINEAR + 4 * ROWS + 2 * (TABLE + 4 * 128_256) + 2 * NORMS,
        ),
        ({"quantization": "int4"}, LINEAR * 20 // 32 + HEAD),
        ({"quantization": "int4", "group_size": 128}, LINEAR * 68 // 128 + HEAD),
        (
            {"quantization": "int4", "group_size": 128, "symmetric": True},
            LINEAR * 66 // 128 + HEAD,
        ),
        ({"quantization": "fp8"}, LINEAR + 4 * ROWS + HEAD),
    ],
)
def test_llama_8b_as_the_engine_packs_it(weights: dict[str, Any], expected: int) -> None:
    settings = WeightsSettings.model_validate(weights)
    assert laid_out(preset_config("llama-3.1-8b"), settings, "bf16").stored_bytes == expected


@pytest.mark.parametrize(
    ("preset", "parameters", "devices", "everywhere"),
    [
        ("llama-3.1-70b", 70_553_706_496, 8, 161 * 8192),  # norms
        ("mixtral-8x7b", 46_702_792_704, 4, 65 * 4096 + 32 * 8 * 4096),  # norms and routers
        # norms of layers and of 128 channels of queries and keys, and routers of 128 experts
        ("qwen3-30b-a3b", 30_532_122_624, 4, 97 * 2048 + 48 * 256 + 48 * 128 * 2048),
    ],
)
def test_what_each_of_several_devices_holds(
    preset: str, parameters: int, devices: int, everywhere: int
) -> None:
    model = preset_config(preset)
    shared = (parameters - everywhere) // devices
    found = weight_bytes_per_device(model, paper_manifest(model), devices)
    assert found == 2 * (shared + everywhere)


@pytest.mark.parametrize(
    ("preset", "devices", "said"),
    [
        ("falcon-7b", 2, "71 heads"),
        ("llama-3.1-8b", 3, "32 heads"),
        ("phi-4", 4, "10 KV heads"),
        ("qwen2.5-0.5b", 4, "14 heads"),
    ],
)
def test_heads_that_devices_cannot_share_are_refused(preset: str, devices: int, said: str) -> None:
    model = preset_config(preset)
    with pytest.raises(InputError, match=f"{said}.* cannot be shared out evenly over {devices}"):
        weight_bytes_per_device(model, paper_manifest(model), devices)


def decode(preset: str, cached: int, batch: int = 1) -> StepCost:
    """In bf16, whatever the checkpoint packs."""
    model = preset_config(preset).model_copy(update={"quantization": None, "torch_dtype": "bf16"})
    sequence = SequenceShape(count=batch, new_tokens=1, cached_tokens=cached)
    shape = StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=batch)
    return step_cost(model, paper_manifest(model), shape, CostOptions())


def moved(preset: str, cached: int, batch: int = 1) -> ByteTraffic:
    return decode(preset, cached, batch).traffic


STATE = 36 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)
"""Qwen3-Next: a matrix of fp32 for each of 32 heads, and 4 columns of 8,192 channels in bf16."""


@pytest.mark.parametrize(
    ("preset", "cached", "read", "written"),
    [
        ("llama-3.1-8b", 8000, 8000 * 32 * 2 * 8 * 128 * 2, 32 * 2 * 8 * 128 * 2),
        ("qwen3-0.6b", 8000, 8000 * 28 * 2 * 8 * 128 * 2, 28 * 2 * 8 * 128 * 2),
        ("gpt2", 500, 500 * 12 * 2 * 768 * 2, 12 * 2 * 768 * 2),
        ("falcon-7b", 2000, 2000 * 32 * 2 * 64 * 2, 32 * 2 * 64 * 2),  # one KV head
        # of a window of W, a new token sees W - 1 cached ones
        ("mistral-7b-v0.1", 8000, 4095 * 32 * 2 * 8 * 128 * 2, 32 * 2 * 8 * 128 * 2),
        ("phi-3-mini-4k", 4000, 2046 * 32 * 2 * 32 * 96 * 2, 32 * 2 * 32 * 96 * 2),
        ("gemma-2-9b", 8000, 21 * (4095 + 8000) * 2 * 8 * 256 * 2, 42 * 2 * 8 * 256 * 2),
        # of 26 layers every sixth in full: 4
        ("gemma-3-1b", 8000, (22 * 511 + 4 * 8000) * 2 * 1 * 256 * 2, 26 * 2 * 1 * 256 * 2),
        ("gpt-oss-20b", 8000, 12 * (127 + 8000) * 2 * 8 * 64 * 2, 24 * 2 * 8 * 64 * 2),
        ("deepseek-v3", 8000, 8000 * 61 * (512 + 64) * 2, 61 * (512 + 64) * 2),
        ("qwen3-next-80b-a3b", 8000, 8000 * 12 * 1024 * 2 + STATE, 12 * 1024 * 2 + STATE),
    ],
)
def test_cache_of_a_decode_step(preset: str, cached: int, read: int, written: int) -> None:
    assert (moved(preset, cached).kv_read, moved(preset, cached).kv_write) == (read, written)


@pytest.mark.parametrize(
    ("preset", "cached", "flops"),
    [
        # two products of a query with what it attends to, itself included
        ("llama-3.1-8b", 7999, 32 * 4 * 32 * 128 * 8000),
        ("mistral-7b-v0.1", 7999, 32 * 4 * 32 * 128 * 4096),
        ("gemma-2-9b", 7999, 21 * 4 * 16 * 256 * (4096 + 8000)),
        ("gpt-oss-20b", 7999, 12 * 4 * 64 * 64 * (128 + 8000)),
        # keys of 128 + 64, values of 128
        ("deepseek-v3", 7999, 61 * 2 * 128 * (192 + 128) * 8000),
        ("falcon-7b", 1999, 32 * 4 * 71 * 64 * 2000),
    ],
)
def test_attention_of_a_decode_step(preset: str, cached: int, flops: int) -> None:
    assert decode(preset, cached).of_groups(OpGroup.ATTENTION).flops == flops


EXPERT = 3 * 4096 * 14336
MIXTRAL = 46_702_792_704 - 32_000 * 4096


def test_weights_of_a_decode_step_are_those_of_the_experts_that_its_tokens_choose() -> None:
    """Mixtral: 2 of 8 for one token; for two, 8 (1 - (6/8)^2) = 3.5 on average; all for many."""
    row = 2 * 4096
    for batch, chosen in ((1, 2.0), (2, 3.5), (4096, 8.0)):
        idle = 32 * (8 - chosen) * EXPERT
        expected = 2 * (MIXTRAL - idle) + batch * row
        assert moved("mixtral-8x7b", 10, batch).weights == pytest.approx(expected, rel=1e-12)
    assert 2 * (MIXTRAL - 32 * 6 * EXPERT) == 25_497_706_496


def test_from_where_a_decode_step_reads_more_cache_than_weights() -> None:
    """Llama-3.1-8B reads 2 (8,030,261,248 - 525,336,576) bytes and a row of 8,192, and 131,072 a token:
    15,009,857,536 / 131,072 = 114,516.1."""
    model = preset_config("llama-3.1-8b")
    settings = RunConfig(model=model.name)
    target = make_target(settings, model, paper_manifest(model), "bf16", decode_kernel=True)
    assert context_crossing(target).value == 114_517
