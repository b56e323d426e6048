"""GGUF headers: what is read, and damage of every part."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from llmprof.architectures.gguf_header import read_header
from llmprof.architectures.gguf_types import GGML_TYPES, LOADABLE_TYPES
from llmprof.architectures.installed_model import installed_model_file
from llmprof.errors import CapabilityError, InputError, LlmprofError
from tests.model_files import Packed, write_gguf

Q4_1_ROWS = Packed("Q4_1", (2, 64), bytes(2 * 2 * 20))


def small(path: Path, **changes: object) -> Path:
    metadata = {
        "a.int": 7,
        "a.negative": -7,
        "a.float": 0.5,
        "a.flag": True,
        "a.text": "größe",
        "a.numbers": [1, 2, 3],
        "a.texts": ["x", "", "zz"],
        "a.flags": [True, False],
    }
    tensors = {"m": np.ones((3, 5), np.float32), "packed": Q4_1_ROWS}
    return write_gguf(path, metadata, tensors, **changes)  # type: ignore[arg-type]


def damaged(path: Path, change: Callable[[bytearray], object]) -> Path:
    data = bytearray(small(path).read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def put(offset: int, layout: str, value: int) -> Callable[[bytearray], object]:
    return lambda data: struct.pack_into(layout, data, offset, value)


@pytest.mark.parametrize("version", [2, 3])
def test_everything_is_read(tmp_path: Path, version: int) -> None:
    header = read_header(small(tmp_path / "x.gguf", version=version))
    assert header.version == version
    assert header.metadata == {
        "a.int": 7,
        "a.negative": -7,
        "a.float": 0.5,
        "a.flag": True,
        "a.text": "größe",
        "a.numbers": (1, 2, 3),
        "a.texts": ("x", "", "zz"),
        "a.flags": (True, False),
    }
    first, second = header.tensors
    assert (first.name, first.shape, first.type.name, first.stored_bytes) == (
        "m",
        (3, 5),
        "F32",
        60,
    )
    assert (second.shape, second.type.stored_dtype, second.stored_bytes) == ((2, 64), "q4_1", 80)


@pytest.mark.parametrize("alignment", [32, 64, 8])
def test_offsets_point_at_the_data(tmp_path: Path, alignment: int) -> None:
    path = write_gguf(
        tmp_path / "x.gguf",
        {"k": "v"},
        {"a": np.full(3, 1.5, np.float32), "b": np.arange(4, dtype=np.float16)},
        alignment=alignment,
    )
    data = path.read_bytes()
    a, b = read_header(path).tensors
    assert np.frombuffer(data, "<f4", 3, a.offset).tolist() == [1.5, 1.5, 1.5]
    assert np.frombuffer(data, "<f2", 4, b.offset).tolist() == [0, 1, 2, 3]
    assert b.offset % alignment == 0


@pytest.mark.model
def test_agrees_with_the_gguf_library_on_a_real_file() -> None:
    path = installed_model_file()
    header, library = read_header(path), gguf.GGUFReader(path)
    ours = [(t.name, t.shape, t.type.name, t.offset, t.stored_bytes) for t in header.tensors]
    theirs = [
        (t.name, tuple(reversed(t.shape.tolist())), t.tensor_type.name, t.data_offset, t.n_bytes)
        for t in library.tensors
    ]
    assert ours == theirs
    fields = {key: field for key, field in library.fields.items() if not key.startswith("GGUF.")}
    assert header.metadata.keys() == fields.keys()
    for key, value in header.metadata.items():
        if not isinstance(value, tuple):
            assert value == fields[key].contents()
            continue
        assert len(value) == len(fields[key].data)
        assert list(value[:99]) == fields[key].contents(slice(0, 99))
        assert list(value[-99:]) == fields[key].contents(slice(-99, None))


def test_storage_formats_agree_with_the_gguf_library() -> None:
    for number, ours in GGML_TYPES.items():
        theirs = gguf.GGMLQuantizationType(number)
        assert theirs.name == ours.name
        assert gguf.GGML_QUANT_SIZES[theirs] == (ours.block_size, ours.block_bytes)
    assert {kind.name for kind in GGML_TYPES.values()} >= set(LOADABLE_TYPES)


@pytest.mark.parametrize("cut", [0, 3, 4, 11, 20, 23, 24, 40, 90, 200, 330])
def test_a_file_cut_in_its_header(tmp_path: Path, cut: int) -> None:
    path = small(tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"x\.gguf"):
        read_header(path)


def test_a_file_cut_in_its_data_names_the_tensor(tmp_path: Path) -> None:
    path = small(tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:-17])
    with pytest.raises(InputError, match="truncated or damaged: tensor 'packed' ends at byte"):
        read_header(path)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (put(0, "<4s", b"GGML"), "does not start with"),  # type: ignore[arg-type]
        (put(4, "<I", 1), "version 1"),
        (put(4, "<I", 99), "version 99"),
        (put(4, ">I", 3), "big-endian"),
        (put(8, "<Q", 2**63), "the number of tensors is"),
        (put(16, "<Q", 2**62), "the number of metadata pairs is"),
        (put(24, "<Q", 2**60), "the key of metadata pair 1 of 8 claims"),
        (put(24, "<Q", 999), "it ends within the key of metadata pair 1 of 8"),
        (put(32, "<B", 0xFF), "the key of metadata pair 1 of 8 is not UTF-8"),
        (put(37, "<I", 77), "'a.int' has the unknown type 77"),
        (put(37, "<I", 9), "'a.int'"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: Callable[[bytearray], object], part: str) -> None:
    with pytest.raises(LlmprofError, match=part):
        read_header(damaged(tmp_path / "x.gguf", change))


def tensor_entry(path: Path, offset: int, layout: str, value: int) -> Path:
    """Change a byte range counted from the end of the name in the one entry of a file."""
    data = bytearray(write_gguf(path, {}, {"the_tensor": Q4_1_ROWS}).read_bytes())
    struct.pack_into(layout, data, data.index(b"the_tensor") + 10 + offset, value)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("offset", "layout", "value", "part"),
    [
        (0, "<I", 0, "has 0 dimensions"),
        (0, "<I", 5, "has 5 dimensions"),
        (4, "<Q", 48, "no multiple of the 32 of Q4_1"),
        (4, "<Q", 0, "empty shape"),
        (12, "<Q", 2**50, "ends at byte"),
        (20, "<I", 999, "unknown ggml type 999"),
        (24, "<Q", 7, "not aligned to 32"),
        (24, "<Q", 2**62, "ends at byte"),
    ],
)
def test_a_damaged_tensor_entry_is_named(
    tmp_path: Path, offset: int, layout: str, value: int, part: str
) -> None:
    with pytest.raises(LlmprofError, match=f"'the_tensor'.*{part}"):
        read_header(tensor_entry(tmp_path / "x.gguf", offset, layout, value))


def test_tensors_that_share_bytes_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", {}, {"a": Q4_1_ROWS, "b_tensor": Q4_1_ROWS})
    data = bytearray(path.read_bytes())
    struct.pack_into("<Q", data, data.index(b"b_tensor") + 8 + 4 + 16 + 4, 32)
    path.write_bytes(data)
    with pytest.raises(InputError, match="'a' and 'b_tensor' overlap"):
        read_header(path)


def test_names_must_be_unique(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", {"k1": 1, "k2": 2}, {"t1": Q4_1_ROWS, "t2": Q4_1_ROWS})
    data = path.read_bytes()
    path.write_bytes(data.replace(b"k2", b"k1"))
    with pytest.raises(InputError, match="key 'k1' appears twice"):
        read_header(path)
    path.write_bytes(data.replace(b"t2", b"t1"))
    with pytest.raises(InputError, match="tensor 't1' appears 2 times"):
        read_header(path)


@pytest.mark.parametrize("alignment", [0, 4, 12, 2**30, -8, "wide"])
def test_absurd_alignment(tmp_path: Path, alignment: int | str) -> None:
    path = write_gguf(tmp_path / "x.gguf", {"general.alignment": alignment}, {"t": Q4_1_ROWS})
    with pytest.raises(InputError, match=r"general\.alignment"):
        read_header(path)


def test_one_shard_of_several_is_incomplete(tmp_path: Path) -> None:
    metadata = {"split.count": 9, "split.no": 0, "split.tensors.count": 100}
    path = write_gguf(tmp_path / "x.gguf", metadata, {"t": Q4_1_ROWS})
    with pytest.raises(InputError, match="incomplete: shard 1 of 9"):
        read_header(path)
    whole = write_gguf(tmp_path / "x.gguf", {"split.count": 1, "split.no": 0}, {"t": Q4_1_ROWS})
    assert len(read_header(whole).tensors) == 1


def test_not_a_readable_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_header(tmp_path / "absent.gguf")
    with pytest.raises(InputError, match="cannot read"):
        read_header(tmp_path)


def test_unknown_types_are_a_matter_of_capability(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError):
        read_header(tensor_entry(tmp_path / "x.gguf", 20, "<I", 999))
