"""GGUF tensors as floats. Expected numbers are worked out from ggml's block layouts by hand."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from llmprof.architectures.config_json import parse_config
from llmprof.engine import gguf_tensors
from llmprof.engine.gguf_tensors import GgufTensors
from llmprof.errors import InputError
from tests.model_files import (
    Array,
    Packed,
    tiny_config,
    tiny_gguf_metadata,
    tiny_gguf_tensors,
    write_gguf,
)

MODEL = parse_config(tiny_config(), name="tiny")
EMBEDDING, GGUF_EMBEDDING = "model.embed_tokens.weight", "token_embd.weight"


def read(
    folder: Path,
    tensors: dict[str, Array | Packed],
    name: str = EMBEDDING,
    *,
    architecture: str = "llama",
) -> torch.Tensor:
    path = write_gguf(folder / "tiny.gguf", tiny_gguf_metadata(architecture), tensors)
    shape = next(iter(tensors.values())).shape
    out = torch.empty(shape)
    GgufTensors(path, MODEL).read_into(name, out)
    return out


def half(value: float) -> bytes:
    return struct.pack("<e", value)


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values)


NIBBLES = bytes(low | high << 4 for low, high in zip(range(16), reversed(range(16)), strict=True))
LOW_THEN_HIGH = [*range(16), *reversed(range(16))]


def test_q8_0(tmp_path: Path) -> None:
    row = half(0.5) + struct.pack("<32b", *range(-16, 16))
    packed = Packed("Q8_0", (2, 32), row + half(2.0) + row[2:])
    expected = rows([0.5 * x for x in range(-16, 16)], [2.0 * x for x in range(-16, 16)])
    assert torch.equal(read(tmp_path, {GGUF_EMBEDDING: packed}), expected)


def test_q4_0(tmp_path: Path) -> None:
    packed = Packed("Q4_0", (1, 32), half(0.25) + NIBBLES)
    expected = rows([0.25 * (x - 8) for x in LOW_THEN_HIGH])
    assert torch.equal(read(tmp_path, {GGUF_EMBEDDING: packed}), expected)


def test_q4_1(tmp_path: Path) -> None:
    packed = Packed("Q4_1", (1, 32), half(0.25) + half(-3.0) + NIBBLES)
    expected = rows([0.25 * x - 3 for x in LOW_THEN_HIGH])
    assert torch.equal(read(tmp_path, {GGUF_EMBEDDING: packed}), expected)


def test_q4_k(tmp_path: Path) -> None:
    """Scales and minima of 6 bits: the first four of eight lie plainly in bytes 0..3 and 4..7.

    A pair of sub-blocks shares 32 bytes of nibbles: the low halves are the first one's.
    """
    scales = bytes([1, 2, 3, 4]) + bytes([0, 5, 0, 0]) + bytes(4)
    nibbles = bytes([0x73]) * 32 + bytes(96)
    packed = Packed("Q4_K", (1, 256), half(0.5) + half(0.25) + scales + nibbles)
    found = read(tmp_path, {GGUF_EMBEDDING: packed})[0]
    assert torch.equal(found[:32], torch.full((32,), 0.5 * 1 * 3))
    assert torch.equal(found[32:64], torch.full((32,), 0.5 * 2 * 7 - 0.25 * 5))
    assert not found[64:].any()


def test_q6_k(tmp_path: Path) -> None:
    """Six bits less 32: four low ones in `ql`, two high ones in `qh`; a signed scale per 16."""
    low, high = bytes([0x05]) * 64 + bytes(64), bytes([0b11]) * 32 + bytes(32)
    scales = struct.pack("<16b", 1, -2, *[0] * 14)
    packed = Packed("Q6_K", (1, 256), low + high + scales + half(0.5))
    found = read(tmp_path, {GGUF_EMBEDDING: packed})[0]
    assert torch.equal(found[:16], torch.full((16,), 0.5 * (0b110101 - 32)))
    assert torch.equal(found[16:32], torch.full((16,), -2 * 0.5 * (0b110101 - 32)))
    assert not found[32:].any()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_floats(tmp_path: Path, dtype: str) -> None:
    stored = (np.arange(64).reshape(2, 32) / 8).astype(dtype)
    found = read(tmp_path, {GGUF_EMBEDDING: stored})
    assert torch.equal(found, torch.arange(64).view(2, 32) / 8)


def test_bf16(tmp_path: Path) -> None:
    bits = np.array([[0x3F80, 0xC040]], dtype=np.uint16)
    assert torch.equal(read(tmp_path, {GGUF_EMBEDDING: bits}), rows([1.0, -3.0]))


def test_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_tensors, "_CHUNK_NUMBERS", 70)
    stored = np.arange(5 * 32, dtype=np.float32).reshape(5, 32)
    found = read(tmp_path, {GGUF_EMBEDDING: stored})
    assert torch.equal(found, torch.from_numpy(stored))


def interleaved(rows_: Array, heads: int, head_dim: int) -> Array:
    """Rows as llama files keep them: channel i of a head and channel i + head_dim / 2 in turn."""
    out = np.empty_like(rows_)
    for head in range(heads):
        for pair in range(head_dim // 2):
            start = head * head_dim
            out[start + 2 * pair] = rows_[start + pair]
            out[start + 2 * pair + 1] = rows_[start + pair + head_dim // 2]
    return out


@pytest.mark.parametrize(("module", "heads"), [("q", 4), ("k", 2)])
def test_llama_files_keep_rotary_pairs_side_by_side(
    module: str, heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_tensors, "_CHUNK_NUMBERS", 3 * 32)
    weight = np.random.default_rng(0).standard_normal((heads * 8, 32)).astype(np.float32)
    bias = weight[:, 0].copy()
    name = f"model.layers.1.self_attn.{module}_proj"
    for suffix, plain in (("weight", weight), ("bias", bias)):
        stored = {f"blk.1.attn_{module}.{suffix}": interleaved(plain, heads, 8)}
        found = read(tmp_path, dict(stored), f"{name}.{suffix}")
        assert torch.equal(found, torch.from_numpy(plain))


@pytest.mark.parametrize(
    ("architecture", "module"), [("qwen2", "q"), ("qwen3", "k"), ("llama", "v")]
)
def test_other_rows_stay_in_order(architecture: str, module: str, tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    found = read(
        tmp_path,
        {f"blk.0.attn_{module}.weight": weight},
        f"model.layers.0.self_attn.{module}_proj.weight",
        architecture=architecture,
    )
    assert torch.equal(found, torch.from_numpy(weight))


def test_a_missing_tensor(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_gguf_metadata(), tiny_gguf_tensors())
    with pytest.raises(InputError, match=r"'blk\.0\.attn_q\.bias' is missing"):
        GgufTensors(path, MODEL).read_into("model.layers.0.self_attn.q_proj.bias", torch.empty(32))


def test_a_file_that_shrinks_after_its_header_was_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_gguf_metadata(), tiny_gguf_tensors())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="truncated"):
        GgufTensors(path, MODEL)
