"""safetensors headers: what is read, and damage of every part."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from llmprof.architectures.safetensors_header import read_header
from llmprof.errors import InputError
from tests.model_files import Array, write_safetensors


def raw(path: Path, header: object, data: bytes = b"", *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_agrees_with_the_safetensors_library(tmp_path: Path) -> None:
    tensors: dict[str, Array] = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.arange(4, dtype=np.float16),
        "scalar": np.array(3, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "c": np.arange(2, dtype=np.uint16),
    }
    path = write_safetensors(tmp_path / "x.safetensors", tensors)
    ours = {tensor.name: tensor for tensor in read_header(path).tensors}
    with safe_open(path, framework="numpy") as library:
        assert set(ours) == set(library.keys())
        for name, tensor in ours.items():
            theirs = library.get_slice(name)
            assert (list(tensor.shape), tensor.dtype) == (theirs.get_shape(), theirs.get_dtype())
    stored = path.read_bytes()
    assert np.frombuffer(stored, "<f4", 6, ours["b"].offset).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.frombuffer(stored, "<f2", 4, ours["a"].offset).tolist() == [0, 1, 2, 3]
    assert ours["a"].stored_bytes == 8


@pytest.mark.parametrize("cut", [0, 5, 8, 30, -1])
def test_a_truncated_file(tmp_path: Path, cut: int) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"a": np.ones(4, np.float32)})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"x\.safetensors is truncated"):
        read_header(path)


def test_a_header_that_claims_more_than_the_file_holds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="claims 9223372036854775808"):
        read_header(raw(tmp_path / "x.safetensors", {}, length=2**63))


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"\xff\xfe",
        b"[1]",
        b'"text"',
        b'{"a": 1, "a": 2}',
        b'{"\\ud800": {}}',
        b"[" * 100_000,
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, ' + b"9" * 5000 + b"]}}",
    ],
)
def test_a_header_that_is_no_clean_json_object(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(InputError, match=r"x\.safetensors"):
        read_header(raw(tmp_path / "x.safetensors", header, bytes(8)))


@pytest.mark.parametrize(
    "bad",
    [
        5,
        entry(dtype="F12"),
        entry(dtype=["F32"]),  # type: ignore[arg-type]
        entry(shape=None),
        entry(shape=[2.0]),
        entry(shape=[-2]),
        entry(shape=[True, 2]),
        entry(shape=[2**70]),
        entry(shape=[3]),
        entry(shape=[1] * 17 + [2]),
        entry(offsets=[0]),
        entry(offsets=[8, 0]),
        entry(offsets=[4, 12]),
        entry(offsets="08"),
        {},
    ],
)
def test_a_bad_entry_is_named(tmp_path: Path, bad: object) -> None:
    with pytest.raises(InputError, match="tensor 'bad'"):
        read_header(raw(tmp_path / "x.safetensors", {"bad": bad}, bytes(8)))


def test_tensors_must_fill_the_data(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(InputError, match="'b' leaves a hole or overlaps"):
        read_header(raw(path, {"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)))
    with pytest.raises(InputError, match="describes 8 bytes of tensors, the file holds 9"):
        read_header(raw(path, {"a": entry()}, bytes(9)))
    assert len(read_header(raw(path, {"a": entry()}, bytes(8))).tensors) == 1


def test_not_a_readable_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_header(tmp_path / "absent.safetensors")
