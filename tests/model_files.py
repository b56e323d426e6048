"""Writers of small model files: GGUF, safetensors folders and their metadata.

They are written from the format descriptions and share no code with the readers under test.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
"""float32, float16, uint16 holding the bits of bfloat16, or uint8 those of float8_e4m3fn."""
MetadataValue = bool | int | float | str | Sequence[bool] | Sequence[int | float | str]

_GGML_IDS = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q8_0": 8,
    "Q4_K": 12,
    "Q6_K": 14,
    "BF16": 30,
}


@dataclass(frozen=True)
class Packed:
    """A tensor in the bytes of its storage format; `shape` is logical: [out, in]."""

    type_name: str
    shape: tuple[int, ...]
    data: bytes


def write_gguf(
    path: Path,
    metadata: Mapping[str, MetadataValue],
    tensors: Mapping[str, Array | Packed],
    *,
    version: int = 3,
    alignment: int = 32,
) -> Path:
    """A GGUF file; integers become uint32, floats float32."""
    packed = {name: _packed(tensor) for name, tensor in tensors.items()}
    if alignment != 32:
        metadata = {**metadata, "general.alignment": alignment}
    head = b"GGUF" + struct.pack("<IQQ", version, len(packed), len(metadata))
    for key, value in metadata.items():
        head += _string(key) + _value(value)
    data = b""
    for name, tensor in packed.items():
        head += _string(name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        head += struct.pack("<IQ", _GGML_IDS[tensor.type_name], len(data))
        data += _padded(tensor.data, alignment)
    path.write_bytes(_padded(head, alignment) + data)
    return path


def write_safetensors(path: Path, tensors: Mapping[str, Array]) -> Path:
    """One safetensors file, in the order of the mapping."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        stored = np.ascontiguousarray(tensor).tobytes()
        header[name] = {
            "dtype": {"float32": "F32", "float16": "F16", "uint16": "BF16", "uint8": "F8_E4M3"}[
                tensor.dtype.name
            ],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(stored)],
        }
        data += stored
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def write_safetensors_folder(
    folder: Path,
    config: Mapping[str, object],
    tensors: Mapping[str, Array],
    *,
    shards: int = 1,
    tokenizer: str | None = None,
) -> Path:
    """A checkpoint folder; more than one shard comes with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(tokenizer)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    weight_map: dict[str, str] = {}
    for index in range(shards):
        name = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = {key: tensors[key] for key in list(tensors)[index::shards]}
        write_safetensors(folder / name, part)
        weight_map |= dict.fromkeys(part, name)
    index_file = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index_file))
    return folder


def tiny_config(**changes: object) -> dict[str, object]:
    """config.json of a two-layer llama of 32 channels; a change to `...` removes the field."""
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 48,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    return {key: value for key, value in (config | changes).items() if value is not ...}


def tiny_gguf_metadata(architecture: str = "llama", **changes: object) -> dict[str, MetadataValue]:
    """Metadata of the same model; keys of `changes` are without the architecture's prefix.

    Dots are written as double underscores: `rope__freq_base=...`.
    """
    shape: dict[str, object] = {
        "block_count": 2,
        "context_length": 128,
        "embedding_length": 32,
        "feed_forward_length": 64,
        "attention__head_count": 4,
        "attention__head_count_kv": 2,
        "attention__layer_norm_rms_epsilon": 1e-5,
        "rope__freq_base": 10000.0,
    }
    metadata: dict[str, MetadataValue] = {"general.architecture": architecture}
    for key, value in (shape | changes).items():
        if value is not ...:
            metadata[f"{architecture}.{key.replace('__', '.')}"] = value  # type: ignore[assignment]
    return metadata


def tiny_hf_tensors(seed: int = 0, *, layers: int = 2) -> dict[str, Array]:
    """float32 weights of `tiny_config()` under their Hugging Face names."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (48, 32)}
    for layer in range(layers):
        shapes |= {f"model.layers.{layer}.{hf}": shape for _, hf, shape in _TINY_LAYER}
    shapes |= {"model.norm.weight": (32,), "lm_head.weight": (48, 32)}
    return _random(shapes, seed)


def tiny_gguf_tensors(seed: int = 0, *, layers: int = 2) -> dict[str, Array]:
    """The same shapes under their GGUF names."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (48, 32)}
    for layer in range(layers):
        shapes |= {f"blk.{layer}.{gguf}": shape for gguf, _, shape in _TINY_LAYER}
    shapes |= {"output_norm.weight": (32,), "output.weight": (48, 32)}
    return _random(shapes, seed)


_TINY_LAYER: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("attn_norm.weight", "input_layernorm.weight", (32,)),
    ("attn_q.weight", "self_attn.q_proj.weight", (32, 32)),
    ("attn_k.weight", "self_attn.k_proj.weight", (16, 32)),
    ("attn_v.weight", "self_attn.v_proj.weight", (16, 32)),
    ("attn_output.weight", "self_attn.o_proj.weight", (32, 32)),
    ("ffn_norm.weight", "post_attention_layernorm.weight", (32,)),
    ("ffn_gate.weight", "mlp.gate_proj.weight", (64, 32)),
    ("ffn_up.weight", "mlp.up_proj.weight", (64, 32)),
    ("ffn_down.weight", "mlp.down_proj.weight", (32, 64)),
)


def _random(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {
        name: (generator.standard_normal(shape) * 0.2 + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes.items()
    }


def _packed(tensor: Array | Packed) -> Packed:
    if isinstance(tensor, Packed):
        return tensor
    name = {"float32": "F32", "float16": "F16", "uint16": "BF16"}[tensor.dtype.name]
    return Packed(name, tensor.shape, np.ascontiguousarray(tensor).tobytes())


def _value(value: MetadataValue) -> bytes:
    kind, data = _element(value[0] if isinstance(value, list | tuple) else value)
    if isinstance(value, list | tuple):
        data = b"".join(_element(one)[1] for one in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + data
    return struct.pack("<I", kind) + data


def _element(value: object) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return (4, struct.pack("<I", value)) if value >= 0 else (5, struct.pack("<i", value))
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 8, _string(str(value))


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _padded(data: bytes, alignment: int) -> bytes:
    return data + bytes(-len(data) % alignment)
