"""A settings file as another commit has it, in a repository made here."""

import subprocess
from pathlib import Path

import pytest

from llmprof.errors import InputError
from llmprof.experiments.gate_base import settings_at_ref

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]


def git(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], check=True, cwd=folder, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits of `sub/gate.yaml` (models `first` and `second`), and an edit that is in none."""
    git(tmp_path, "init", "-q")
    (tmp_path / "sub").mkdir()
    (tmp_path / "other.txt").write_text("x")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "empty")
    file = tmp_path / "sub" / "gate.yaml"
    for name in ("first", "second"):
        file.write_text(f"model: {name}\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", name)
        git(tmp_path, "tag", name)
    file.write_text("model: edited\n")
    return tmp_path


def test_a_tag_and_what_is_edited_here_does_not_matter(repository: Path) -> None:
    file = repository / "sub" / "gate.yaml"
    assert settings_at_ref(file, "first", []).model == "first"
    assert settings_at_ref(file, "HEAD", ["workload.batch=4"]).workload.batch == 4
    assert settings_at_ref(file, "HEAD", []).model == "second"
    assert file.read_text() == "model: edited\n"


def test_a_detached_head_and_a_commit_by_its_number(repository: Path) -> None:
    git(repository, "stash", "-q")
    git(repository, "checkout", "-q", "--detach", "first")
    number = git(repository, "rev-parse", "second")
    file = repository / "sub" / "gate.yaml"
    assert settings_at_ref(file, "HEAD", []).model == "first"
    assert settings_at_ref(file, number[:12], []).model == "second"


@pytest.mark.parametrize(
    ("ref", "said", "remedy"),
    [
        ("origin/main", "origin/main", "git fetch"),
        ("HEAD~2", "exists on disk, but not in", "has no such file"),
        ("-x", "is no git ref", None),
    ],
)
def test_one_line_that_says_what_is_missing(
    repository: Path, ref: str, said: str, remedy: str | None
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        settings_at_ref(repository / "sub" / "gate.yaml", ref, [])
    assert remedy is None or remedy in str(caught.value.remedy)
    assert "\n" not in caught.value.line()


def test_a_folder_that_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "gate.yaml").write_text("model: m\n")
    with pytest.raises(InputError, match="not a git repository"):
        settings_at_ref(tmp_path / "gate.yaml", "HEAD", [])


def test_a_file_that_is_broken_in_that_commit_is_named_with_its_ref(repository: Path) -> None:
    file = repository / "sub" / "gate.yaml"
    file.write_text("model: m\nworklod: {batch: 2}\n")
    git(repository, "commit", "-qam", "broken")
    with pytest.raises(InputError, match=r"gate\.yaml at HEAD:2.*worklod"):
        settings_at_ref(file, "HEAD", [])


def test_a_shallow_clone_of_one_branch_is_mended_by_what_the_error_says(
    repository: Path, tmp_path: Path
) -> None:
    """As CI checks out: the base's commit is not there, and a plain fetch would not name it."""
    git(repository, "branch", "base")
    git(repository, "checkout", "-q", "-b", "change")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", "-b", "change", repository.as_uri(), str(clone))
    file = clone / "sub" / "gate.yaml"
    with pytest.raises(InputError) as refused:
        settings_at_ref(file, "origin/base", [])
    _, _, command = refused.value.line().partition("fetch the base first: git ")
    git(clone, *command.split())
    assert settings_at_ref(file, "origin/base", []).model
