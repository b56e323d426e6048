"""Bytes of packed matrices, against the shapes of the tensors that hold them."""

from typing import Any

import pytest

from llmprof.architectures.checkpoint_formats import stored_bytes
from llmprof.architectures.config_json import parse_config
from llmprof.architectures.gguf_types import GGML_TYPES
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.architectures.presets import preset_config
from llmprof.architectures.safetensors_header import StoredTensor
from llmprof.architectures.stored_tensors import joined_tensors, packed_parameters
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.checkpoint_format import CheckpointQuantization
from llmprof.schema.model import ModelConfig
from llmprof.units import byte_count, decimal_bytes
from tests.model_files import tiny_config

ROWS, COLUMNS = 4096, 4096
WEIGHTS = ROWS * COLUMNS
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}


def packing(**changes: Any) -> CheckpointQuantization:
    fields: dict[str, Any] = {"method": "awq", "number": "int", "bits": 4, "symmetric": False}
    return CheckpointQuantization(**(fields | changes))


def bits(**changes: Any) -> float:
    return 8 * stored_bytes(packing(**changes), (ROWS, COLUMNS)) / WEIGHTS


@pytest.mark.parametrize(("group", "expected"), [(32, 4.625), (64, 4.3125), (128, 4.15625)])
def test_groups_with_zero_points(group: int, expected: float) -> None:
    assert bits(group_size=group) == expected
    index = 8 * 4 * COLUMNS / WEIGHTS
    assert bits(method="gptq", group_size=group) == expected + index


@pytest.mark.parametrize(("group", "expected"), [(32, 4.5), (64, 4.25), (128, 4.125)])
def test_groups_without_zero_points(group: int, expected: float) -> None:
    shape = 8 * 16 / WEIGHTS
    found = bits(method="compressed-tensors", group_size=group, symmetric=True)
    assert found == expected + shape


def test_one_group_per_row() -> None:
    assert bits(group_size=None) == 4 + (16 + 4) / COLUMNS


def test_other_methods() -> None:
    def of(**changes: Any) -> int:
        return stored_bytes(packing(symmetric=True, **changes), (300, 256))

    assert of(method="fp8", bits=8, block=(128, 128)) == 300 * 256 + 4 * 3 * 2
    assert of(method="fp8", bits=8, per_tensor=True, input_scales=True) == 300 * 256 + 4 + 4
    assert of(method="mxfp4", group_size=32) == 300 * 256 // 32 * 17
    assert of(method="bitsandbytes", bits=8) == 300 * 256 + 4 * 300 + 1
    nf4 = of(method="bitsandbytes", group_size=64)
    assert nf4 == 300 * 256 // 2 + 4 * 1200 + 64
    double = of(method="bitsandbytes", group_size=64, double_quantized=True)
    assert double == 300 * 256 // 2 + 1200 + 4 * 5 + 4 * 256 + 64
    int8 = of(method="compressed-tensors", bits=8, packed=False)
    assert int8 == 300 * 256 + 2 * 300


def test_packed_integers_are_many_weights_each() -> None:
    words = StoredTensor("q.qweight", (512, 11_008), "I32", 0, 512 * 11_008 * 4)
    assert packed_parameters(words, "qweight", 4) == 45_088_768


def test_k_quants_by_tensor() -> None:
    kinds = {kind.name: kind for kind in GGML_TYPES.values()}

    def of(name: str, rows: int, columns: int) -> int:
        return rows * columns // kinds[name].block_size * kinds[name].block_bytes

    assert of("Q4_K", 4096, 4096) == 9_437_184
    assert of("Q6_K", 1024, 4096) == 3_440_640
    assert of("F16", 1, 7) == 14


def test_sizes_name_their_unit() -> None:
    size = 2 * 6_738_415_616
    assert decimal_bytes(size, 4) == "13.48 GB"
    assert byte_count(size, 4) == "12.55 GiB"


@pytest.mark.parametrize(
    ("preset", "expected"), [("gpt-oss-20b", 13_761_264_768), ("gpt-oss-120b", 65_248_815_744)]
)
def test_only_experts_are_packed(preset: str, expected: int) -> None:
    assert paper_manifest(preset_config(preset)).stored_bytes == expected


def quantized(where: dict[str, object]) -> ModelConfig:
    return parse_config(tiny_config(torch_dtype="bfloat16", **where), name="tiny")


def test_what_is_excluded_stays_in_floats() -> None:
    fp8 = {"quant_method": "fp8", "weight_block_size": [16, 16]}
    excluded = {"modules_to_not_convert": ["model.layers.0.self_attn", "re:.*down_proj"]}
    manifest = paper_manifest(quantized({"quantization_config": fp8 | excluded}))
    floats = {one.name for one in manifest.tensors if one.stored_dtype == "bf16"}
    assert "model.layers.0.self_attn.k_proj.weight" in floats
    assert "model.layers.1.mlp.down_proj.weight" in floats
    assert {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"} <= floats
    assert "model.layers.1.self_attn.k_proj.weight" not in floats


def test_a_packing_in_the_text_part_is_found() -> None:
    config = {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "quantization_config": GPTQ},
    }
    found = parse_config(config, name="nested").quantization
    assert found is not None
    assert (found.method, found.bits, found.group_size) == ("gptq", 4, 32)


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:[", "re:.*a.*b.*c.*d.*e", "x" * 300])
def test_patterns_that_could_take_forever_are_refused(pattern: str) -> None:
    excluded = {"quant_method": "fp8", "modules_to_not_convert": [pattern]}
    with pytest.raises(CapabilityError, match="pattern"):
        paper_manifest(quantized({"quantization_config": excluded}))


def floats(packing: dict[str, Any], **config: object) -> set[str]:
    """Modules of the first layer, and the head, that such a checkpoint keeps in bf16."""
    manifest = paper_manifest(quantized({"quantization_config": packing, **config}))
    names = [one.name for one in manifest.tensors if one.stored_dtype == "bf16"]
    kept = [name.removesuffix(".weight") for name in names if "norm" not in name]
    return {name.rpartition(".")[2] for name in kept if ".1." not in name} - {"embed_tokens"}


ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_rules_of_gptqmodel_leave_modules_out() -> None:
    """`-:` and an expression for a module's whole name, from its start."""
    assert floats(GPTQ) == {"lm_head"}
    assert floats(GPTQ | {"dynamic": {"-:.*attn.*": {}}}) == {"lm_head", *ATTENTION}
    within: dict[str, Any] = {"dynamic": {r"-:^model\.language_model\.layers\.0\.mlp": {}}}
    assert floats(GPTQ | within) == {"lm_head", "gate_proj", "up_proj", "down_proj"}
    with pytest.raises(CapabilityError, match="settings of their own"):
        quantized({"quantization_config": GPTQ | {"dynamic": {"+:.*down.*": {"bits": 8}}}})


@pytest.mark.parametrize(
    "spelling", [["mlp.up_proj", "mlp.gate_proj"], [["mlp.up_proj"], ["mlp.gate_proj"]]]
)
def test_a_list_of_what_is_packed_leaves_the_rest_in_floats(spelling: list[object]) -> None:
    listed = {"modules_in_block_to_quantize": spelling}
    assert floats(GPTQ | listed) == {"lm_head", "down_proj", *ATTENTION}
    with pytest.raises(InputError, match="modules_in_block_to_quantize"):
        quantized({"quantization_config": GPTQ | {"modules_in_block_to_quantize": [[3]]}})


def test_layers_that_autofp8_ignored() -> None:
    fp8: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "static"}
    assert floats(fp8) == {"lm_head"}
    ignored = {"ignored_layers": ["lm_head", "model.layers.0.self_attn.o_proj"]}
    assert floats(fp8 | ignored) == {"lm_head", "o_proj"}


def test_bitsandbytes_leaves_the_head_where_no_list_says_otherwise() -> None:
    nf4 = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    assert floats(nf4 | {"llm_int8_skip_modules": None}) == {"lm_head"}
    assert floats(nf4 | {"llm_int8_skip_modules": []}) == set()
    assert floats(nf4 | {"llm_int8_skip_modules": ["lm_head", "model.layers.0.mlp"]}) == {
        "lm_head",
        "gate_proj",
        "up_proj",
        "down_proj",
    }


def test_bitsandbytes_in_no_number_of_bits_is_not_guessed() -> None:
    for flags, said in (({}, "neither"), ({"load_in_4bit": True, "load_in_8bit": True}, "both")):
        with pytest.raises(CapabilityError, match=f"{said} of load_in_4bit"):
            quantized({"quantization_config": {"quant_method": "bitsandbytes", **flags}})


def test_a_quantization_that_packs_nothing_says_nothing_of_the_files() -> None:
    """mxfp4 is one of experts, and a llama has none."""
    dense = quantized({"quantization_config": {"quant_method": "mxfp4"}})
    with pytest.raises(CapabilityError, match="packs none of its tensors"):
        paper_manifest(dense)


def test_awq_lists_parts_of_names() -> None:
    """With a dot at the end, as some lists have it; a gate is no gate_proj of Mixtral's experts."""
    awq = {"quant_method": "awq", "bits": 4, "group_size": 32}
    assert floats(awq | {"modules_to_not_convert": ["layers.0.self_attn."]}) == {
        "lm_head",
        *ATTENTION,
    }
    mixtral = {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    }
    found = floats(awq | {"modules_to_not_convert": ["gate"]}, **mixtral)
    assert found == {"lm_head", "router"}


def test_names_within_a_model_with_towers() -> None:
    fp8: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [16, 16]}
    for prefix in ("model.language_model.", "language_model.model."):
        excluded = {"modules_to_not_convert": [f"{prefix}layers.0.self_attn.k_proj"]}
        assert floats(fp8 | excluded) == {"lm_head", "k_proj"}


def compressed(fmt: str, **weights: object) -> dict[str, object]:
    scheme = {"num_bits": 4, "type": "int", "symmetric": True} | weights
    group = {"targets": ["Linear"], "weights": scheme}
    return {
        "quant_method": "compressed-tensors",
        "format": fmt,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def up_proj_bytes(packing: dict[str, object]) -> int:
    """Of the matrix [64, 32]: 2,048 weights."""
    manifest = paper_manifest(quantized({"quantization_config": packing}))
    name = "model.layers.0.mlp.up_proj.weight"
    return next(one.stored_bytes for one in manifest.tensors if one.name == name)


def test_what_compressed_tensors_stores_of_a_matrix() -> None:
    shape = 16  # two int64
    grouped = compressed("pack-quantized", strategy="group", group_size=16)
    assert up_proj_bytes(grouped) == 1024 + 2 * 64 * 2 + shape
    # a scheme without a strategy is what its group size says; -1 is a scale for each row
    assert up_proj_bytes(compressed("pack-quantized", group_size=16)) == 1024 + 256 + shape
    assert up_proj_bytes(compressed("pack-quantized", group_size=-1)) == 1024 + 128 + shape
    assert up_proj_bytes(compressed("pack-quantized")) == 1024 + 2 + shape
    # groups that are ordered by activation are stored: an int32 for each column
    ordered = compressed("pack-quantized", strategy="group", group_size=16, actorder="group")
    assert up_proj_bytes(ordered) == 1024 + 256 + shape + 4 * 32
    # codes that are not packed take a byte each, however few bits they have
    assert up_proj_bytes(compressed("int-quantized", strategy="channel")) == 2048 + 128


@pytest.mark.parametrize("fmt", ["marlin-24", "nvfp4-pack-quantized", "dense"])
def test_storage_of_other_bytes_is_refused(fmt: str) -> None:
    with pytest.raises(CapabilityError, match=f"'{fmt}' is not supported"):
        quantized({"quantization_config": compressed(fmt)})


def test_sparse_weights_are_refused() -> None:
    packing = compressed("pack-quantized") | {"sparsity_config": {"format": "sparse-24-bitmask"}}
    with pytest.raises(CapabilityError, match="sparse weights"):
        quantized({"quantization_config": packing})
    dense = compressed("pack-quantized") | {"sparsity_config": {"format": "dense"}}
    assert up_proj_bytes(dense) == up_proj_bytes(compressed("pack-quantized"))


def test_gptq_in_the_layout_of_one_kernel_is_refused() -> None:
    with pytest.raises(CapabilityError, match="'marlin' is not supported"):
        quantized({"quantization_config": GPTQ | {"checkpoint_format": "marlin"}})


def stored(name: str, shape: tuple[int, ...], dtype: str, size: int) -> StoredTensor:
    return StoredTensor(name, shape, dtype, 0, size)


def test_pieces_of_a_packed_matrix_become_one() -> None:
    model = quantized({"quantization_config": GPTQ})
    name = "model.layers.0.mlp.up_proj"  # [64, 32]: 4 words per column, one group
    pieces = [
        stored(f"{name}.qweight", (4, 64), "I32", 1024),
        stored(f"{name}.qzeros", (1, 8), "I32", 32),
        stored(f"{name}.scales", (1, 64), "F16", 128),
        stored(f"{name}.g_idx", (32,), "I32", 128),
    ]
    (found,) = joined_tensors(model, pieces, where="here").decoder
    assert (found.name, found.shape) == (f"{name}.weight", (64, 32))
    assert (found.parameters, found.stored_bytes) == (64 * 32, 1312)
    on_paper = {one.name: one for one in paper_manifest(model).tensors}
    assert on_paper[found.name].stored_bytes == 1312
    with pytest.raises(InputError, match="hold 2056 weights"):
        joined_tensors(model, [stored(f"{name}.qweight", (1, 257), "I32", 0)], where="here")


def test_experts_of_a_layer_become_one_tensor() -> None:
    model = parse_config(
        tiny_config(
            model_type="mixtral",
            architectures=["MixtralForCausalLM"],
            num_local_experts=2,
            num_experts_per_tok=1,
        ),
        name="tiny",
    )
    files = [
        stored(f"model.layers.1.block_sparse_moe.experts.{i}.w1.weight", (64, 32), "BF16", 4096)
        for i in range(2)
    ]
    (found,) = joined_tensors(model, files, where="here").decoder
    assert found.name == "model.layers.1.mlp.experts.gate_proj.weight"
    assert (found.shape, found.stored_bytes) == ((2, 64, 32), 8192)


def test_masks_are_no_parameters() -> None:
    gpt2 = preset_config("gpt2")
    files = [
        stored("h.0.attn.bias", (1, 1, 1024, 1024), "F32", 4 * 1024**2),
        stored("h.0.attn.c_attn.weight", (768, 2304), "F32", 4 * 768 * 2304),
        stored("wpe.weight", (1024, 768), "F32", 4 * 1024 * 768),
    ]
    joined = joined_tensors(gpt2, files, where="here")
    (mask,) = joined.apart
    assert (mask.parameters, mask.stored_bytes) == (0, 4 * 1024**2)
    assert {one.name: one.shape for one in joined.decoder} == {
        "model.layers.0.self_attn.qkv_proj.weight": (2304, 768),
        "model.embed_positions.weight": (1024, 768),
    }
