"""Hugging Face folders, whole and broken."""

import json
from pathlib import Path

import numpy as np
import pytest

from llmprof.architectures.checkpoint_folder import CheckpointFolder, read_folder
from llmprof.errors import CapabilityError, InputError
from tests.model_files import (
    tiny_config,
    tiny_hf_tensors,
    write_safetensors,
    write_safetensors_folder,
)

INDEX = "model.safetensors.index.json"


def read(folder: Path) -> CheckpointFolder:
    return read_folder(folder, name="tiny", with_weights=True)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_safetensors_folder(tmp_path / "m", tiny_config(), tiny_hf_tensors(), shards=3)


def rewrite_index(folder: Path, **changes: object) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"] |= changes
    index["weight_map"] = {k: v for k, v in index["weight_map"].items() if v is not None}
    (folder / INDEX).write_text(json.dumps(index))


def test_one_file_and_shards_hold_the_same_model(tmp_path: Path, sharded: Path) -> None:
    single = write_safetensors_folder(
        tmp_path / "s", tiny_config(), tiny_hf_tensors(), tokenizer="{}"
    )
    whole, parts = read(single), read(sharded)
    assert whole.manifest == parts.manifest
    assert whole.manifest is not None
    assert whole.manifest.stored_bytes == sum(t.nbytes for t in tiny_hf_tensors().values())
    assert whole.tokenizer == single / "tokenizer.json"
    assert parts.tokenizer is None
    assert [shard.name for shard in parts.shards] == [
        f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)
    ]


def test_only_the_configuration_where_no_weights_are_asked_for(sharded: Path) -> None:
    for shard in sharded.glob("*.safetensors"):
        shard.write_bytes(b"damaged")
    found = read_folder(sharded, name="tiny", with_weights=False)
    assert (found.manifest, found.shards) == (None, ())


def test_stored_dtypes_are_kept_per_tensor(tmp_path: Path) -> None:
    tensors = dict(tiny_hf_tensors())
    tensors["lm_head.weight"] = tensors["lm_head.weight"].astype(np.float16)
    tensors["model.norm.weight"] = np.zeros(32, np.uint16)
    manifest = read(write_safetensors_folder(tmp_path / "m", tiny_config(), tensors)).manifest
    assert manifest is not None
    dtypes = {spec.name: spec.stored_dtype for spec in manifest.tensors}
    assert (dtypes["lm_head.weight"], dtypes["model.norm.weight"]) == ("fp16", "bf16")


@pytest.mark.parametrize("with_head", [True, False])
def test_a_tied_model_may_store_its_head_again(tmp_path: Path, with_head: bool) -> None:
    tensors = dict(tiny_hf_tensors())
    if not with_head:
        del tensors["lm_head.weight"]
    config = tiny_config(tie_word_embeddings=True)
    manifest = read(write_safetensors_folder(tmp_path / "m", config, tensors)).manifest
    assert manifest is not None
    assert len(manifest.tensors) == len(tiny_hf_tensors()) - 1


def test_an_untied_model_without_a_head_is_incomplete(tmp_path: Path) -> None:
    tensors = dict(tiny_hf_tensors())
    del tensors["lm_head.weight"]
    with pytest.raises(InputError, match=r"lm_head\.weight"):
        read(write_safetensors_folder(tmp_path / "m", tiny_config(), tensors))


def test_rotary_buffers_are_no_parameters(tmp_path: Path) -> None:
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}
    folder = write_safetensors_folder(tmp_path / "m", tiny_config(), tiny_hf_tensors() | buffer)
    manifest = read(folder).manifest
    assert manifest is not None
    assert len(manifest.tensors) == len(tiny_hf_tensors())


def test_missing_shards_are_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(InputError, match="1 of 3 shards are missing, the first is model-00002"):
        read(sharded)


@pytest.mark.parametrize(
    "shard", ["../outside.safetensors", "/etc/x.safetensors", "a/b.safetensors", "x.bin", "", 3]
)
def test_no_shard_lies_outside_of_the_folder(sharded: Path, shard: object) -> None:
    write_safetensors(sharded.parent / "outside.safetensors", {"a": np.ones(1, np.float32)})
    rewrite_index(sharded, **{"lm_head.weight": shard})
    with pytest.raises(InputError, match=r"lm_head\.weight.*no file name"):
        read(sharded)


def test_index_and_shards_must_agree(sharded: Path) -> None:
    rewrite_index(sharded, ghost="model-00001-of-00003.safetensors")
    with pytest.raises(InputError, match="'ghost' is only in the index"):
        read(sharded)
    rewrite_index(sharded, ghost=None, **{"lm_head.weight": None})
    with pytest.raises(InputError, match=r"'lm_head\.weight' is not in the index"):
        read(sharded)
    (sharded / INDEX).write_text('{"weight_map": {}}')
    with pytest.raises(InputError, match="'weight_map' is missing or empty"):
        read(sharded)


def test_safetensors_without_index_are_no_model(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    with pytest.raises(InputError, match=r"neither model\.safetensors nor model\."):
        read(sharded)


def test_pickles_are_refused(tmp_path: Path) -> None:
    folder = write_safetensors_folder(tmp_path / "m", tiny_config(), {})
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CapabilityError, match="pickle"):
        read(folder)


def test_packed_integers_are_refused(tmp_path: Path) -> None:
    folder = write_safetensors_folder(tmp_path / "m", tiny_config(), tiny_hf_tensors())
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"', 1))
    with pytest.raises(CapabilityError, match="is stored as I32"):
        read(folder)


def test_a_folder_without_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no config\.json"):
        read(tmp_path)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError) as refused:
        read(tmp_path)
    assert str(tmp_path / "m.gguf") in refused.value.line()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1, "a": 2}', "{'a': 1}", "\0"])
def test_a_configuration_that_is_no_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"config\.json"):
        read(tmp_path)
