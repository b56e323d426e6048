"""Mutated GGUF, safetensors, index, config, tokenizer and YAML files: a result or a one-line error, cheaply.

No other exception, nothing that takes over five seconds, and no allocation beyond twice the file and
64 MiB. LLMPROF_EXAMPLES=20000 tries as many of each kind; by default a few hundred in all.
"""

import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmprof.architectures.source import resolve_model
from llmprof.engine.tokenizer_json import tokenizer_from_json
from llmprof.errors import LlmprofError
from llmprof.store.settings_file import load_settings_text
from tests.model_files import (
    tiny_config,
    tiny_gguf_metadata,
    tiny_gguf_tensors,
    tiny_hf_tensors,
    write_gguf,
    write_safetensors_folder,
)

many = settings(
    max_examples=int(os.environ.get("LLMPROF_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
MOST_SECONDS = 5.0
_FREE_BYTES = 64 * 2**20
_LARGEST_FILE = 64 * 2**10
YAML = b"""\
model: smollm2-135m-instruct
weights: {source: random, dtype: bf16}
kv_cache:
  layout: paged
  memory_bytes: 100000000
workload: &w {batch: 4, prompt_tokens: 128}
measure: {rounds: 3, passes: [clean, grouped]}
sweep: {grid: {workload.batch: "1-64*2"}}
"""
_HOSTILE_BYTES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"\xff" * 7 + b"\x7f", b"\x00" * 5 + b"\x80" * 3]),
)
_HOSTILE_TEXT = st.one_of(
    st.binary(min_size=1, max_size=6),
    st.sampled_from(
        [b"[" * 2000, b"{" * 2000, b"1" * 5000, b"1e999", b"&a [*a]", b"*w", b"!!python/object:os.system x",
         b'"../../etc/passwd.safetensors"', b'"\\ud800"', b"-0", b"NaN", b"\x00", b"\t", b"<<: *w", b"- " * 2000]
    ),
)  # fmt: skip


def _bytes(build: Callable[[Path], Path]) -> bytes:
    with TemporaryDirectory() as folder:
        return build(Path(folder)).read_bytes()


def _folder_files(shards: int) -> dict[str, bytes]:
    with TemporaryDirectory() as name:
        folder = write_safetensors_folder(
            Path(name), tiny_config(), tiny_hf_tensors(), shards=shards
        )
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


GGUF = _bytes(
    lambda folder: write_gguf(
        folder / "m.gguf",
        tiny_gguf_metadata() | {"tokenizer.ggml.tokens": ["a", "b"], "general.alignment": 32},
        tiny_gguf_tensors(),
    )
)
GGUF_HEADER = GGUF.rindex(b"output.weight") + 48
ONE_FILE = _folder_files(1)
SHARDS = _folder_files(2)
TOKENIZER = (
    b'{"version": "1.0", "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, '
    b'"lstrip": false, "rstrip": false, "normalized": false, "special": true}], '
    b'"model": {"type": "WordLevel", "vocab": {"<s>": 0, "red": 1, "?": 2}, "unk_token": "?"}}'
)
INDEX = "model.safetensors.index.json"


@st.composite
def damaged(
    draw: st.DrawFn, original: bytes, head: int, patches: st.SearchStrategy[bytes]
) -> bytes:
    """Overwritten, inserted, cut out and cut off."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, min(head, len(data))))
        length = draw(st.sampled_from([0, 1, 4, 8, -1]))
        patch = draw(patches)
        data[start : start + (len(patch) if length < 0 else length)] = patch
    cut = draw(st.one_of(st.just(len(data)), st.just(len(data)), st.integers(0, len(data))))
    return bytes(data[:cut])


def _read(path: Path, file_bytes: int) -> LlmprofError | None:
    return bounded(lambda: resolve_model(str(path)), file_bytes)


def bounded(read: Callable[[], object], file_bytes: int) -> LlmprofError | None:
    """The error, checked to be one line, after a read that was cheap; anything else is raised."""
    started = time.process_time()
    tracemalloc.start()  # only here: it slows down everything, and what draws the examples too
    try:
        error = error_of(read)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < MOST_SECONDS
    assert peak <= 2 * file_bytes + _FREE_BYTES
    assert error is None or (error.message and "\n" not in error.line())
    return error


def error_of(read: Callable[[], object]) -> LlmprofError | None:
    try:
        read()
    except LlmprofError as error:
        return error
    return None


def _read_folder(files: dict[str, bytes]) -> LlmprofError | None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, data in files.items():
            (folder / file).write_bytes(data)
        return _read(folder, sum(map(len, files.values())))


def test_the_originals_are_small_and_fine(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF)
    assert _read(path, len(GGUF)) is None
    assert _read_folder(ONE_FILE) is None
    assert _read_folder(SHARDS) is None
    assert len(GGUF) + sum(map(len, ONE_FILE.values())) < 4 * _LARGEST_FILE


@many
@given(data=damaged(GGUF, GGUF_HEADER, _HOSTILE_BYTES))
def test_gguf(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    _read(path, len(data))


@many
@given(data=damaged(ONE_FILE["model.safetensors"], 3000, st.one_of(_HOSTILE_BYTES, _HOSTILE_TEXT)))
def test_safetensors(data: bytes) -> None:
    _read_folder(ONE_FILE | {"model.safetensors": data})


@many
@given(data=damaged(SHARDS[INDEX], len(SHARDS[INDEX]), _HOSTILE_TEXT))
def test_index_of_shards(data: bytes) -> None:
    _read_folder(SHARDS | {INDEX: data})


@many
@given(data=damaged(ONE_FILE["config.json"], len(ONE_FILE["config.json"]), _HOSTILE_TEXT))
def test_config(data: bytes) -> None:
    _read_folder(ONE_FILE | {"config.json": data})


@many
@given(data=damaged(TOKENIZER, len(TOKENIZER), _HOSTILE_TEXT))
def test_tokenizer(data: bytes) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "tokenizer.json"
        path.write_bytes(data)
        bounded(lambda: tokenizer_from_json(path, (1,)), len(data))


@many
@given(data=damaged(YAML, len(YAML), _HOSTILE_TEXT))
def test_yaml(tmp_path: Path, data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    bounded(lambda: load_settings_text(text, "mutated.yaml", []), len(data))


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/x.safetensors", "a/../b.safetensors"]
)
def test_shards_outside_of_the_folder_are_refused(name: str) -> None:
    index = {"weight_map": {"model.norm.weight": name}}
    error = _read_folder(SHARDS | {INDEX: json.dumps(index).encode()})
    assert error is not None
    assert "no file name" in error.message


def test_a_missing_shard_is_named() -> None:
    first, second = sorted(name for name in SHARDS if name.endswith(".safetensors"))
    error = _read_folder({name: data for name, data in SHARDS.items() if name != second})
    assert error is not None
    assert second in error.message
    assert first not in error.message


def test_a_tensor_in_two_shards_is_named() -> None:
    first, second = sorted(name for name in SHARDS if name.endswith(".safetensors"))
    error = _read_folder(SHARDS | {second: SHARDS[first]})
    assert error is not None
    assert second in error.message
