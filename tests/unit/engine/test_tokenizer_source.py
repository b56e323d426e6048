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


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        load_tokenizer(folder(tmp_path, '{"model": 3}', None))


def test_a_model_without_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no tokenizer"):
        load_tokenizer(folder(tmp_path, None, None))
