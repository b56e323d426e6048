"""Families with layers of their own in GGUF files, against the same weights in a folder.

The files are written by the `gguf` package, whose own map names the tensors.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch

from llmprof.architectures.source import resolve_model
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.errors import CapabilityError, InputError
from tests.tiny_decoders import (
    DECODERS,
    PROMPT,
    TinyDecoder,
    load_engine,
    settings,
    tensors_of,
    write_decoder,
)

Extra = Callable[[gguf.GGUFWriter], None]
ARCHITECTURES = {
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "mixtral": "llama",
    "qwen3_moe": "qwen3moe",
}


def decoder(name: str) -> TinyDecoder:
    """As GGUF can say it: Gemma scales queries by the head, and every layer has experts."""
    found = next(one for one in DECODERS if one.name == name)
    config = dict(found.config)
    if "query_pre_attn_scalar" in config:
        config["query_pre_attn_scalar"] = config["head_dim"]
    if "mlp_only_layers" in config:
        config["mlp_only_layers"] = []
    return replace(found, config=config)


def write_gguf(path: Path, one: TinyDecoder, extra: Extra | None = None) -> Path:
    architecture = ARCHITECTURES[str(one.config["model_type"])]
    writer = gguf.GGUFWriter(path, architecture)
    _describe(writer, one.config)
    if extra:
        extra(writer)
    (arch,) = (key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, int(str(one.config["num_hidden_layers"])))
    for name, tensor in tensors_of(one.config).items():
        module, _, kind = name.replace("mlp.router", "mlp.gate").rpartition(".")
        own = names.get_name(module)
        assert own is not None, name
        stored: npt.NDArray[np.float32] = tensor.astype(np.float32)
        if architecture == "llama" and module.endswith(("q_proj", "k_proj")):
            stored = _adjacent_pairs(stored, one.config)
        if architecture.startswith("gemma") and module.endswith("norm"):
            stored = stored + np.float32(1)
        writer.add_tensor(f"{own}.{kind}", stored)
    _finish(writer)
    return path


def _describe(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    optional = {
        "head_dim": (writer.add_key_length, writer.add_value_length),
        "sliding_window": (writer.add_sliding_window,),
        "attn_logit_softcapping": (writer.add_attn_logit_softcapping,),
        "final_logit_softcapping": (writer.add_final_logit_softcapping,),
        "num_local_experts": (writer.add_expert_count,),
        "num_experts": (writer.add_expert_count,),
        "num_experts_per_tok": (writer.add_expert_used_count,),
        "moe_intermediate_size": (writer.add_expert_feed_forward_length,),
        "sliding_window_pattern": (writer.add_sliding_window_pattern,),
    }
    for key, adders in optional.items():
        if config.get(key) is not None:
            for add in adders:
                add(config[key])
    scaling = config.get("rope_scaling")
    if scaling and scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _adjacent_pairs(
    weight: npt.NDArray[np.float32], config: Mapping[str, Any]
) -> npt.NDArray[np.float32]:
    """As llama files keep the channels of a rotary pair: side by side."""
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    halves = weight.reshape(-1, 2, head_dim // 2, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


@pytest.mark.parametrize(
    "name", ["gemma2", "gemma3", "phi3", "phi3_window", "mixtral", "qwen3_moe"]
)
def test_the_same_model_as_the_folder(name: str, tmp_path: Path) -> None:
    one = decoder(name)
    file = write_gguf(tmp_path / "tiny.gguf", one)
    folder = write_decoder(tmp_path / "folder", one)
    described = resolve_model(str(file)).config
    published = resolve_model(str(folder)).config
    same = {"name": "", "bos_token_id": None, "eos_token_ids": ()}
    assert described.model_copy(update=same) == published.model_copy(update=same)
    logits, tokens = zip(*(_run(path) for path in (file, folder)), strict=True)
    torch.testing.assert_close(logits[0], logits[1], atol=1e-5, rtol=1e-5)
    assert tokens[0] == tokens[1]
    assert len(set(tokens[0])) > 1


def _run(path: Path) -> tuple[torch.Tensor, tuple[int, ...]]:
    engine = load_engine(settings(path))
    batch = engine.open_batch(torch.tensor([PROMPT]), output_tokens=1)
    with torch.inference_mode():
        logits = engine.forward(batch.next_step(), batch.cache, batch.rotary, NullProbe())
    return logits, engine.generate(PROMPT, GreedySampler(), max_tokens=16).ids


@pytest.mark.parametrize("name", ["phi3_longrope_short", "phi3_longrope_long"])
def test_factors_of_long_sequences(name: str, tmp_path: Path) -> None:
    one = decoder(name)
    scaling = one.config["rope_scaling"]
    assert isinstance(scaling, dict)
    original = one.config.get("original_max_position_embeddings") or scaling.get(
        "original_max_position_embeddings"
    )

    def factors(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_orig_ctx_len(original)
        for kind in ("long", "short"):
            writer.add_tensor(
                f"rope_factors_{kind}.weight", np.array(scaling[f"{kind}_factor"], np.float32)
            )

    file = write_gguf(tmp_path / "tiny.gguf", one, factors)
    folder = write_decoder(tmp_path / "folder", one)
    logits, tokens = zip(*(_run(path) for path in (file, folder)), strict=True)
    torch.testing.assert_close(logits[0], logits[1], atol=1e-5, rtol=1e-5)
    assert tokens[0] == tokens[1]


def test_what_a_file_may_not_leave_out_or_add(tmp_path: Path) -> None:
    one = decoder("gemma3")
    config = {key: value for key, value in one.config.items() if key != "sliding_window"}
    file = write_gguf(tmp_path / "no_window.gguf", replace(one, config=config))
    with pytest.raises(InputError, match=r"gemma3\.attention\.sliding_window' is missing"):
        resolve_model(str(file))
    shared = write_gguf(
        tmp_path / "shared.gguf",
        decoder("qwen3_moe"),
        lambda writer: writer.add_expert_shared_count(1),
    )
    with pytest.raises(CapabilityError, match=r"expert_shared_count"):
        resolve_model(str(shared))


def test_the_largest_gemma_scales_queries_by_its_width(tmp_path: Path) -> None:
    """46 layers: the 27B, where hidden_size / heads is not head_dim."""
    one = decoder("gemma2")
    config = {**one.config, "num_hidden_layers": 46}
    file = write_gguf(tmp_path / "large.gguf", replace(one, config=config))
    assert resolve_model(str(file)).config.query_scale == pytest.approx((32 / 4) ** -0.5)
