import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from llmprof.instruments.libraries import TorchBuild, library_versions, torch_build


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, version_py: str | None) -> None:
    spec = None
    if version_py is not None:
        (folder / "version.py").write_text(version_py)
        spec = ModuleSpec("torch", None, origin=str(folder / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


def test_the_installed_torch_is_told_as_torch_tells_it() -> None:
    assert torch_build() == TorchBuild(torch.__version__, torch.version.cuda)


def test_a_cuda_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from typing import Optional\n__all__ = ['__version__', 'debug', 'cuda']\n"
        "__version__ = '2.11.0+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\n"
        "hip: Optional[str] = None\n"
    )
    install(monkeypatch, tmp_path, text)
    assert torch_build() == TorchBuild("2.11.0+cu128", "12.8")
    assert list(library_versions().items())[:2] == [("torch", "2.11.0+cu128"), ("cuda", "12.8")]


def test_a_cpu_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, "__version__ = '2.14.0+cpu'\ncuda: Optional[str] = None\n")
    assert torch_build() == TorchBuild("2.14.0+cpu", None)


def test_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, None)
    assert torch_build() is None
    versions = library_versions()
    assert "torch" not in versions
    assert {"numpy", "llmprof"} <= set(versions)
