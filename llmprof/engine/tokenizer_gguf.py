"""A tokenizer from the metadata of a GGUF file.

Source: llama.cpp (llama-vocab.cpp) for what each name in `tokenizer.ggml.pre` means, and the
tokenizer.json files of the models that the names stand for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from llmprof.architectures.gguf_cursor import MetadataValue
from llmprof.architectures.gguf_header import read_header
from llmprof.engine.tokenizer import Tokenizer, library_errors_explained
from llmprof.errors import CapabilityError, InputError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""Token types of llama.cpp; 5 is unused, 6 a single byte."""

_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3: Final = _WORDS % "{1,3}"
_QWEN2: Final = _WORDS % ""
_UNNAMED: Final = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
"""What llama.cpp does with a file that does not say which pre-tokenizer it wants."""

_SPACE: Final = "▁"


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The arrays of a file, checked against each other."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    metadata: Mapping[str, MetadataValue]
    where: str

    @property
    def ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def of_types(self, *types: int) -> list[str]:
        pairs = zip(self.tokens, self.types, strict=True)
        return [token for token, kind in pairs if kind in types and token]


def tokenizer_from_gguf(path: Path, eos_ids: tuple[int, ...]) -> Tokenizer:
    """Build the tokenizer that a file describes.

    Files may leave `add_bos_token` out: SentencePiece models and Llama 3 then want BOS, as in
    llama.cpp, and others do not.

    Raises:
        InputError: metadata is missing or malformed.
        CapabilityError: a tokenizer that cannot be reproduced exactly.
    """
    metadata, where = read_header(path).metadata, str(path)
    vocabulary = _Vocabulary(
        tokens=_texts(metadata, "tokens", where),
        types=_integers(metadata, "token_type", where),
        metadata=metadata,
        where=where,
    )
    if len(vocabulary.types) != len(vocabulary.tokens):
        raise InputError(
            f"{where}: {len(vocabulary.tokens)} tokens, but {len(vocabulary.types)} token types"
        )
    with library_errors_explained(f"{where}: its tokenizer cannot be built"):
        backend = _backend(vocabulary)
        _recognise_special(backend, vocabulary)
    bos_id, add_bos = _bos(metadata, where)
    return Tokenizer(backend, bos_id, eos_ids, add_bos, where)


def _bos(metadata: Mapping[str, MetadataValue], where: str) -> tuple[int | None, bool]:
    usual = metadata["tokenizer.ggml.model"] == "llama" or _pre(metadata) == "llama-bpe"
    add_bos = metadata.get("tokenizer.ggml.add_bos_token", usual)
    bos_id = metadata.get("tokenizer.ggml.bos_token_id")
    if isinstance(bos_id, int):
        return bos_id, bool(add_bos)
    if add_bos:
        raise InputError(f"{where}: BOS is wanted, but 'tokenizer.ggml.bos_token_id' is missing")
    return None, False


def _backend(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    kind = vocabulary.metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        return _byte_level(vocabulary)
    if kind == "llama":
        return _sentencepiece(vocabulary)
    raise CapabilityError(
        f"{vocabulary.where}: tokenizer.ggml.model is {kind!r}; "
        "possible: 'gpt2' (byte-level BPE) and 'llama' (SentencePiece)"
    )


def _byte_level(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    """GPT-2's BPE over bytes, which are spelled as printable characters."""
    lines = _texts(vocabulary.metadata, "merges", vocabulary.where)
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    pre = _pre(vocabulary.metadata)
    tokenizer = tokenizers.Tokenizer(
        _bpe(vocabulary, merges=merges, ignore_merges=pre == "llama-bpe")
    )
    tokenizer.pre_tokenizer = _pre_tokenizer(pre, vocabulary.where)
    tokenizer.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _pre_tokenizer(pre: str, where: str) -> pre_tokenizers.PreTokenizer:
    """How a text is cut into words before BPE joins bytes within each of them."""
    match pre:
        case "gpt-2":
            return pre_tokenizers.ByteLevel(add_prefix_space=False)
        case "smollm":
            digits = pre_tokenizers.Digits(individual_digits=True)
            return pre_tokenizers.Sequence(
                [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
        case "llama-bpe":
            return _cut_by(_LLAMA3)
        case "qwen2":
            return _cut_by(_QWEN2)
        case "default":
            return _cut_by(*_UNNAMED)
        case _:
            raise CapabilityError(
                f"{where}: tokenizer.ggml.pre is '{pre}'; "
                "possible: smollm, llama-bpe, qwen2, gpt-2 and default"
            )


def _cut_by(*patterns: str) -> pre_tokenizers.PreTokenizer:
    cuts: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns
    ]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*cuts, to_bytes])


def _sentencepiece(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    """SentencePiece's BPE: any two neighbours may join to a known piece, the best score first.

    The same as a list of merges in the order of the scores of what they give, which is how Hugging
    Face converts such models. Characters that are no piece fall back to bytes.
    """
    unknown = vocabulary.of_types(_UNKNOWN)
    tokenizer = tokenizers.Tokenizer(
        _bpe(
            vocabulary,
            merges=_merges_by_score(vocabulary),
            unk_token=unknown[0] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = vocabulary.metadata.get("tokenizer.ggml.add_space_prefix", True)
    spaces = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    )
    joined = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(
        [*joined, decoders.Strip(" ", 1, 0)] if prefix else joined
    )
    return tokenizer


def _merges_by_score(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    scores = vocabulary.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, tuple) or len(scores) != len(vocabulary.tokens):
        raise InputError(
            f"{vocabulary.where}: 'tokenizer.ggml.scores' must hold one score per token"
        )
    pieces = set(vocabulary.of_types(_NORMAL, _USER_DEFINED))
    merges = []
    for piece, score in zip(vocabulary.tokens, scores, strict=True):
        if piece not in pieces or not isinstance(score, float | int):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in pieces and right in pieces:
                merges.append((-score, -cut, left, right))
    return [(left, right) for _, _, left, right in sorted(merges)]


def _bpe(
    vocabulary: _Vocabulary,
    *,
    merges: list[tuple[str, str]],
    unk_token: str | None = None,
    **options: bool,
) -> BPE:
    ids = vocabulary.ids
    for left, right in merges:
        if not (left in ids and right in ids and left + right in ids):
            raise InputError(
                f"{vocabulary.where}: the merge of '{left}' and '{right}' is not in the vocabulary"
            )
    return BPE(vocab=ids, merges=merges, unk_token=unk_token, **options)


def _recognise_special(tokenizer: tokenizers.Tokenizer, vocabulary: _Vocabulary) -> None:
    """Tokens that are found in a text as a whole, before it is cut into words."""

    def added(*types: int) -> list[AddedToken]:
        return [AddedToken(token, normalized=False) for token in vocabulary.of_types(*types)]

    tokenizer.add_special_tokens(added(_CONTROL, _UNKNOWN))
    tokenizer.add_tokens(added(_USER_DEFINED))


def _pre(metadata: Mapping[str, MetadataValue]) -> str:
    return str(metadata.get("tokenizer.ggml.pre", "default"))


def _texts(metadata: Mapping[str, MetadataValue], name: str, where: str) -> tuple[str, ...]:
    return tuple(item for item in _array(metadata, name, where) if isinstance(item, str))


def _integers(metadata: Mapping[str, MetadataValue], name: str, where: str) -> tuple[int, ...]:
    return tuple(item for item in _array(metadata, name, where) if isinstance(item, int))


def _array(metadata: Mapping[str, MetadataValue], name: str, where: str) -> tuple[object, ...]:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, tuple) or not value:
        raise InputError(f"{where}: 'tokenizer.ggml.{name}' is missing")
    return value
