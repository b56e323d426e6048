"""Whether Triton's kernels run, where it is older than the GPU or broken."""

import importlib
import sys
from collections.abc import Iterator

import pytest
import torch

from llmprof.ceilings.read_kernels import read_kernels
from llmprof.engine.kernels.triton.available import triton_trouble

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    triton_trouble.cache_clear()
    yield
    triton_trouble.cache_clear()


@pytest.fixture
def too_new_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As triton fails where its ptxas does not know the GPU; after printing what it would assemble."""
    from triton.runtime.errors import PTXASError

    module = importlib.import_module("llmprof.engine.kernels.triton.add_splits")

    def refuse(*_: object) -> None:
        print(".target sm_999a")  # noqa: T201
        raise PTXASError("`ptxas` failed with error code 255\n`ptxas` stderr: Value 'sm_999a'")

    monkeypatch.setattr(module, "add_splits", refuse)


@pytest.mark.usefixtures("too_new_a_gpu")
def test_a_gpu_that_ptxas_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert triton_trouble("cpu") == (
        "triton cannot build kernels here (PTXAS error: `ptxas` failed with error code 255)"
    )
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "sm_999a" in printed.err


@pytest.mark.usefixtures("too_new_a_gpu")
def test_its_memory_is_read_by_kernels_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *size, device: zeros(*size))
    names = [kernel.name for kernel in read_kernels("cuda:0")]
    assert names == ["torch.sum", "torch.amax"]


def test_a_triton_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its library wants a newer libc."""
    monkeypatch.setitem(sys.modules, "triton.errors", None)
    trouble = triton_trouble("cpu")
    assert trouble is not None
    assert trouble.startswith("triton cannot be imported (")
