import os
import stat
from pathlib import Path

import pytest

from llmprof.errors import InputError
from llmprof.store.outputs import check_distinct, check_writable, write_atomic


def refusal(path: Path, *, force: bool = False) -> str:
    with pytest.raises(InputError) as caught:
        check_writable(path, force=force)
    assert caught.value.exit_code == 2
    return caught.value.line()


def test_a_new_file_in_a_folder_is_fine_and_nothing_is_left_by_the_check(tmp_path: Path) -> None:
    check_writable(tmp_path / "report.html", force=False)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_found_before_measuring(tmp_path: Path) -> None:
    existing = tmp_path / "a.html"
    existing.write_text("x")
    assert refusal(existing) == f"{existing} exists. Give --force to overwrite it"
    check_writable(existing, force=True)
    assert "it is a folder" in refusal(tmp_path, force=True)
    assert f"folder {tmp_path / 'no'} does not exist" in refusal(tmp_path / "no" / "a.html")
    assert "does not exist" in refusal(existing / "a.html")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody can write")
def test_a_folder_that_refuses_files_even_to_root() -> None:
    assert refusal(Path("/proc/report.html")).startswith("cannot write into folder /proc: ")


def test_writes_and_replaces_without_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_is_that_of_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    write_atomic(tmp_path / "ours", b"")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*a\.bin: No space left on device"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(pipe, force=False)
        write_atomic(pipe, b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_name_that_is_too_long_is_found_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        check_writable(tmp_path / ("a" * 300 + ".html"), force=False)


def test_one_file_for_two_outputs_would_lose_the_first(tmp_path: Path) -> None:
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    check_distinct([one, other, Path(os.devnull), Path(os.devnull)])
    with pytest.raises(InputError) as caught:
        check_distinct([one, other, tmp_path / "." / "a.json"])
    assert caught.value.line().startswith(f"{one} is given for two outputs. ")


def test_two_names_of_one_file_are_one_output(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    with pytest.raises(InputError, match=r"link\.json is given for two outputs"):
        check_distinct([tmp_path / "a.json", tmp_path / "link.json"])
