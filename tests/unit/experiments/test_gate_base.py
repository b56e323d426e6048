"""The baseline's settings from git: what is said where there is no history to read."""

from pathlib import Path

import pytest

from llmprof.errors import InputError
from llmprof.experiments.gate_base import settings_at_ref


def test_outside_a_repository_the_remedy_is_not_to_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    file = tmp_path / "gate.yaml"
    file.write_text("model: m\n")
    with pytest.raises(InputError, match="not a git repository") as caught:
        settings_at_ref(file, "origin/main", ())
    assert "--base CONFIG" in caught.value.line()
    assert "fetch" not in caught.value.line()
