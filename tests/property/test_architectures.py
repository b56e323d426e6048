"""Bytes that strangers wrote: a result or a plain error, never another exception.

LLMPROF_EXAMPLES=20000 tries as many mutations of each kind; by default a few hundred.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.manifest import expected_tensors, manifest_from_config
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.errors import LlmprofError
from tests.model_files import (
    tiny_config,
    tiny_gguf_metadata,
    tiny_gguf_tensors,
    tiny_hf_tensors,
    write_gguf,
    write_safetensors_folder,
)

many = settings(
    max_examples=int(os.environ.get("LLMPROF_EXAMPLES", "200")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def _original(build: Callable[[Path], Path]) -> bytes:
    with TemporaryDirectory() as folder:
        return build(Path(folder)).read_bytes()


GGUF = _original(
    lambda folder: write_gguf(
        folder / "m.gguf",
        tiny_gguf_metadata() | {"tokenizer.ggml.tokens": ["a", "b"]},
        tiny_gguf_tensors(),
    )
)
GGUF_HEADER_BYTES = GGUF.rindex(b"output.weight") + 48
SAFETENSORS = _original(
    lambda folder: (
        write_safetensors_folder(folder, tiny_config(), tiny_hf_tensors()) / "model.safetensors"
    )
)
SAFETENSORS_HEADER_BYTES = 8 + int.from_bytes(SAFETENSORS[:8], "little")

values: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["rope_type", "type", "factor"]), st.integers(), max_size=3),
)


@st.composite
def mutated(draw: st.DrawFn, original: bytes, header_bytes: int) -> bytes:
    """Bytes overwritten in the header, and perhaps an end that is missing."""
    data = bytearray(original)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, header_bytes - 1))
        patch = draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff" * 8)))
        data[start : start + len(patch)] = patch
    cut = draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))
    return bytes(data[:cut])


def _outcome(path: Path) -> ModelSource | LlmprofError:
    try:
        return resolve_model(str(path))
    except LlmprofError as error:
        return error


@many
@given(data=mutated(GGUF, GGUF_HEADER_BYTES))
def test_gguf(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        path.write_bytes(data)
        outcome = _outcome(path)
    if len(data) < len(GGUF):
        assert isinstance(outcome, LlmprofError)
    if data == GGUF:
        assert isinstance(outcome, ModelSource)


@many
@given(data=mutated(SAFETENSORS, SAFETENSORS_HEADER_BYTES))
def test_safetensors(data: bytes) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(tiny_config()))
        (folder / "model.safetensors").write_bytes(data)
        outcome = _outcome(folder)
    if len(data) < len(SAFETENSORS):
        assert isinstance(outcome, LlmprofError)
    if data == SAFETENSORS:
        assert isinstance(outcome, ModelSource)


@many
@given(text=st.one_of(st.binary(max_size=40), st.text(max_size=40).map(str.encode)))
def test_config_text(text: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_bytes(text)
        assert isinstance(_outcome(path), LlmprofError)


@many
@given(
    changes=st.dictionaries(
        st.sampled_from(
            [
                *tiny_config(),
                "head_dim",
                "rope_scaling",
                "rope_parameters",
                "sliding_window",
                "eos_token_id",
                "layer_types",
                "quantization_config",
            ]
        ),
        values,
        min_size=1,
        max_size=3,
    )
)
def test_config_fields(changes: dict[str, object]) -> None:
    try:
        config = parse_config(tiny_config() | changes, name="fuzz")
    except LlmprofError:
        return
    assert config.query_size % config.kv_size == 0


@many
@given(
    layers=st.integers(1, 4),
    groups=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    half_head=st.integers(1, 8),
    hidden=st.integers(1, 64),
    inner=st.integers(1, 96),
    vocab=st.integers(1, 100),
    tied=st.booleans(),
    bias=st.booleans(),
)
def test_parameters_are_a_sum_over_layers(
    layers: int,
    groups: int,
    kv_heads: int,
    half_head: int,
    hidden: int,
    inner: int,
    vocab: int,
    tied: bool,
    bias: bool,
) -> None:
    config = parse_config(
        tiny_config(
            num_hidden_layers=layers,
            num_attention_heads=groups * kv_heads,
            num_key_value_heads=kv_heads,
            head_dim=2 * half_head,
            hidden_size=hidden,
            intermediate_size=inner,
            vocab_size=vocab,
            tie_word_embeddings=tied,
            attention_bias=bias,
        ),
        name="x",
    )
    queries, keys = groups * kv_heads * 2 * half_head, kv_heads * 2 * half_head
    layer = 2 * hidden * (queries + keys) + 3 * hidden * inner + 2 * hidden
    layer += (queries + 2 * keys + hidden) * bias
    expected = layers * layer + hidden + (2 - tied) * vocab * hidden
    assert manifest_from_config(config, "bf16").parameters == expected
    assert len(expected_tensors(config)) == layers * (9 + 4 * bias) + 3 - tied
