"""Tokenizers from GGUF metadata; ids are worked out by hand from small vocabularies."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from llmprof.engine.tokenizer import Tokenizer
from llmprof.engine.tokenizer_gguf import tokenizer_from_gguf
from llmprof.errors import CapabilityError, InputError
from tests.model_files import MetadataValue, write_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def build(folder: Path, **tokenizer: MetadataValue) -> Tokenizer:
    metadata = {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()}
    path = write_gguf(folder / "t.gguf", metadata, {"x": np.zeros(1, dtype=np.float32)})
    return tokenizer_from_gguf(path, (1,))


# --- byte-level BPE -----------------------------------------------------------------------------

SPECIAL = ["<|end|>", "<tool>"]
LETTERS = [*"abcdehilostSTI'.,!0123456789", "Ġ", "Ċ", "Ã", "©", "Ì", "ģ"]
MERGES = ["h e", "l l", "he ll", "1 2", "12 3", "123 4", "Ġ he", "' s", "' S", "Ã ©"]
WHOLE = "hotel"
"""In the vocabulary, though no merges lead to it."""


def byte_level(folder: Path, pre: str | None, **more: MetadataValue) -> Tokenizer:
    tokens = [*SPECIAL, *LETTERS, *(merge.replace(" ", "") for merge in MERGES), WHOLE]
    types = [CONTROL, USER_DEFINED, *[NORMAL] * (len(tokens) - 2)]
    named: dict[str, MetadataValue] = {} if pre is None else {"pre": pre}
    return build(
        folder, model="gpt2", tokens=tokens, token_type=types, merges=MERGES, **named, **more
    )


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.encode(text)
    return [str(tokenizer.backend.id_to_token(token)) for token in ids]


def test_merges_join_within_a_word(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path, "gpt-2")
    assert pieces(tokenizer, "hello he") == ["hell", "o", "Ġhe"]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["1234", "5"]),
        ("smollm", ["1", "2", "3", "4", "5"]),
        ("llama-bpe", ["123", "4", "5"]),
        ("qwen2", ["1", "2", "3", "4", "5"]),
        ("default", ["123", "4", "5"]),
        (None, ["123", "4", "5"]),
    ],
)
def test_how_numbers_are_cut(pre: str | None, expected: list[str], tmp_path: Path) -> None:
    more: dict[str, MetadataValue] = {"add_bos_token": False}
    assert pieces(byte_level(tmp_path, pre, **more), "12345") == expected


@pytest.mark.parametrize(
    ("pre", "expected"),
    [("gpt-2", ["I", "T", "'", "S"]), ("llama-bpe", ["I", "T", "'S"]), ("qwen2", ["I", "T", "'S"])],
)
def test_contractions_in_capitals(pre: str, expected: list[str], tmp_path: Path) -> None:
    # where capitals are no contraction, the apostrophe is a word and the letter another
    assert pieces(byte_level(tmp_path, pre, add_bos_token=False), "IT'S") == expected


def test_llama_3_takes_whole_words_from_the_vocabulary(tmp_path: Path) -> None:
    assert pieces(byte_level(tmp_path, "llama-bpe", add_bos_token=False), WHOLE) == [WHOLE]
    assert pieces(byte_level(tmp_path, "gpt-2"), WHOLE) == [*"hotel"]


def test_qwen_composes_accents(tmp_path: Path) -> None:
    assert pieces(byte_level(tmp_path, "qwen2"), "e\N{COMBINING ACUTE ACCENT}") == ["Ã©"]
    plain = byte_level(tmp_path, "gpt-2")
    assert pieces(plain, "e\N{COMBINING ACUTE ACCENT}") == ["e", "Ì", "ģ"]


def test_special_tokens_in_the_text(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path, "gpt-2")
    ids = tokenizer.encode("he<|end|>he<tool>")
    he = 2 + len(LETTERS)
    assert ids == [he, 0, he, 1]
    assert tokenizer.decode(ids) == "he<|end|>he<tool>"


def test_text_survives(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path, "gpt-2")
    assert tokenizer.decode(tokenizer.encode("hello, it's 2\né")) == "hello, it's 2\né"


@pytest.mark.parametrize(
    ("pre", "stated", "added"),
    [
        ("gpt-2", {}, False),
        ("llama-bpe", {}, True),
        ("llama-bpe", {"add_bos_token": False}, False),
        ("gpt-2", {"add_bos_token": True}, True),
    ],
)
def test_bos(pre: str, stated: dict[str, bool], added: bool, tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path, pre, bos_token_id=1, **stated)
    ids = tokenizer.encode("o")
    assert ids == [1, *ids[-1:]] if added else len(ids) == 1


def test_bos_is_not_added_twice(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path, "llama-bpe", bos_token_id=1)
    assert tokenizer.encode("<tool>o")[:2] != [1, 1]


# --- SentencePiece ------------------------------------------------------------------------------

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def sentencepiece(
    folder: Path, learned: Sequence[tuple[str, float]], **more: MetadataValue
) -> Tokenizer:
    """`learned`: pieces with their scores; single characters follow."""
    pieces_ = [*learned, *((character, -100.0) for character in "▁abcd")]
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *(piece for piece, _ in pieces_)]
    scores = [0.0] * (3 + 256) + [score for _, score in pieces_]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces_)]
    return build(
        folder,
        model="llama",
        tokens=tokens,
        scores=scores,
        token_type=types,
        bos_token_id=1,
        **more,
    )


@pytest.mark.parametrize(
    ("learned", "expected"),
    [
        ([("ab", -1.0), ("bc", -2.0)], ["<s>", "▁", "ab", "c"]),
        ([("ab", -2.0), ("bc", -1.0)], ["<s>", "▁", "a", "bc"]),
        ([("abc", -1.0), ("ab", -2.0), ("bc", -3.0)], ["<s>", "▁", "abc"]),
        ([("▁a", -1.0), ("ab", -2.0)], ["<s>", "▁a", "b", "c"]),
    ],
)
def test_the_best_score_joins_first(
    learned: list[tuple[str, float]], expected: list[str], tmp_path: Path
) -> None:
    assert pieces(sentencepiece(tmp_path, learned), "abc") == expected


def test_unknown_characters_become_bytes(tmp_path: Path) -> None:
    tokenizer = sentencepiece(tmp_path, [])
    assert pieces(tokenizer, "aé") == ["<s>", "▁", "a", "<0xC3>", "<0xA9>"]


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_text_survives(prefix: bool, tmp_path: Path) -> None:
    tokenizer = sentencepiece(
        tmp_path, [("▁a", -1.0)], add_space_prefix=prefix, add_bos_token=False
    )
    assert tokenizer.decode(tokenizer.encode("ab a é")) == "ab a é"
    assert pieces(tokenizer, "a") == (["▁a"] if prefix else ["a"])


# --- what cannot be read ------------------------------------------------------------------------


def test_an_unknown_pre_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match=r"'viking'.*smollm"):
        byte_level(tmp_path, "viking")


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="'t5'"):
        build(tmp_path, model="t5", tokens=["a"], token_type=[1])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"model": "gpt2", "token_type": [1]}, "tokens' is missing"),
        ({"model": "gpt2", "tokens": ["a"], "token_type": [1, 1]}, "1 tokens, but 2"),
        ({"model": "gpt2", "tokens": ["a"], "token_type": [1]}, "merges' is missing"),
        ({"model": "llama", "tokens": ["a"], "token_type": [1]}, "scores"),
        (
            {"model": "gpt2", "tokens": ["a"], "token_type": [1], "merges": ["x y"]},
            "'x' and 'y'",
        ),
        (
            {"model": "gpt2", "tokens": ["a"], "token_type": [1], "merges": ["a a"]},
            "'a' and 'a'",
        ),
    ],
)
def test_damaged_metadata(metadata: dict[str, MetadataValue], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        build(tmp_path, **metadata)


def test_bos_without_an_id(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bos_token_id"):
        byte_level(tmp_path, "gpt-2", add_bos_token=True)
