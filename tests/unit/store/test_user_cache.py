from pathlib import Path

import pytest

from llmprof.store.user_cache import cache_folder, read_cached, write_cached


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMPROF_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_was_cached_is_read_back(folder: Path) -> None:
    assert read_cached("ceilings", "abc") is None
    write_cached("ceilings", "abc", b"one")
    write_cached("ceilings", "abc", b"two")
    assert read_cached("ceilings", "abc") == b"two"
    assert read_cached("other", "abc") is None
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["abc"]


@pytest.mark.parametrize("key", ["../../escape", "a/b", "", ".", "x" * 500, "NVIDIA H200 / 13.0"])
def test_any_text_is_a_key_and_none_leaves_the_folder(folder: Path, key: str) -> None:
    write_cached("ceilings", key, b"data")
    assert read_cached("ceilings", key) == b"data"
    (file,) = (path for path in folder.parent.rglob("*") if path.is_file())
    assert file.parent == folder / "ceilings"


def test_an_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LLMPROF_CACHE_DIR", str(tmp_path / "file"))
    write_cached("ceilings", "abc", b"data")
    assert read_cached("ceilings", "abc") is None


def test_a_write_that_fails_half_way_is_no_error(folder: Path) -> None:
    (folder / "ceilings" / "abc").mkdir(parents=True)
    write_cached("ceilings", "abc", b"data")
    assert read_cached("ceilings", "abc") is None


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LLMPROF_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/llmprof")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert cache_folder() == tmp_path / ".cache/llmprof"
    monkeypatch.setenv("LLMPROF_CACHE_DIR", "/own")
    assert cache_folder() == Path("/own")
