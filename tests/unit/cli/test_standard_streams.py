"""What a terminal's encoding lacks: a sign or the prefix of a unit must not get lost."""

import io
import sys

import pytest

from llmprof.cli.standard_streams import tolerate_encoding


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", "1 -> 8 | 322 us <= 1 s, ?"),
        ("latin-1", "1 -> 8 · 322 µs <= 1 s, ?"),
        ("utf-8", "1 → 8 · 322 µs ≤ 1 s, 模"),
    ],
)
def test_what_an_encoding_lacks_is_spelled_out(
    encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    tolerate_encoding()
    stream.write("1 → 8 · 322 µs ≤ 1 s, 模")
    stream.flush()
    assert buffer.getvalue().decode(encoding) == shown
