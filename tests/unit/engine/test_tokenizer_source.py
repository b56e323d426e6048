"""Which tokenizer a model gets, and tokenizer.json with its neighbour."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.engine.tokenizer_source import load_tokenizer
from llmprof.errors import InputError
from tests.model_files import tiny_config, tiny_hf_tensors, write_safetensors_folder


def words(*, template: bool = False) -> str:
    backend = Backend(WordLevel({"<s>": 0, "red": 1, "blue": 2, "?": 3}, unk_token="?"))
    backend.pre_tokenizer = Whitespace()
    backend.add_special_tokens(["<s>"])
    if template:
        backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return str(backend.to_str())


def folder(path: Path, tokenizer: str | None, config: dict[str, object] | None) -> ModelSource:
    write_safetensors_folder(
        path, tiny_config(eos_token_id=[2, 3]), tiny_hf_tensors(), tokenizer=tokenizer
    )
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return resolve_model(str(path))


@pytest.mark.parametrize(
    ("template", "config", "expected"),
    [
        (False, None, [1, 2]),
        (True, None, [0, 1, 2]),
        (True, {"bos_token": "<s>"}, [0, 1, 2]),
        (True, {"bos_token": "<s>", "add_bos_token": False}, [1, 2]),
        (False, {"bos_token": "<s>"}, [1, 2]),
        (False, {"bos_token": "<s>", "add_bos_token": True}, [0, 1, 2]),
        (False, {"bos_token": {"content": "<s>"}, "add_bos_token": True}, [0, 1, 2]),
    ],
)
def test_bos_only_if_the_metadata_asks(
    template: bool, config: dict[str, object] | None, expected: list[int], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(folder(tmp_path, words(template=template), config))
    assert tokenizer.encode("red blue") == expected
    assert tokenizer.eos_ids == (2, 3)


def test_special_tokens_in_the_text(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(folder(tmp_path, words(template=True), None))
    assert tokenizer.encode("<s>red") == [0, 1]
    assert tokenizer.decode([0, 1]) == "<s> red"


def test_bos_that_is_asked_for_and_unknown(tmp_path: Path) -> None:
    source = folder(tmp_path, words(), {"bos_token": "<nope>", "add_bos_token": True})
    with pytest.raises(InputError, match="add_bos_token"):
        load_tokenizer(source)


PANICS = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}, "added_tokens": []}
"""The library stops with a panic, which is no Exception."""


NO_SUCH_TOKEN = {
    "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"},
    "added_tokens": [],
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    },
}
"""It can be read, and panics as soon as it is used."""


@pytest.mark.parametrize("damaged", ["{", {"model": 3}, PANICS, NO_SUCH_TOKEN])
def test_a_damaged_file_is_one_line(damaged: str | dict[str, object], tmp_path: Path) -> None:
    text = damaged if isinstance(damaged, str) else json.dumps({"version": "1.0", **damaged})
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        load_tokenizer(folder(tmp_path, text, None))


def test_a_text_that_the_file_cannot_spell_is_one_line(tmp_path: Path) -> None:
    text = words().replace('"unk_token":"?"', '"unk_token":"absent"')
    tokenizer = load_tokenizer(folder(tmp_path, text, None))
    assert tokenizer.encode("red") == [1]
    with pytest.raises(InputError, match=r"tokenizer\.json cannot read this text: .*UNK"):
        tokenizer.encode("green")
    with pytest.raises(InputError, match=r"tokenizer\.json cannot read this text"):
        tokenizer.encode("\udcff")


def test_truncation_and_padding_of_the_training_are_not_applied(tmp_path: Path) -> None:
    backend = Backend.from_str(words())
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    tokenizer = load_tokenizer(folder(tmp_path, backend.to_str(), None))
    assert tokenizer.encode("red blue red") == [1, 2, 1]


def test_a_model_without_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no tokenizer"):
        load_tokenizer(folder(tmp_path, None, None))
