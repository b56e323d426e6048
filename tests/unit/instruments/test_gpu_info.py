from types import SimpleNamespace

import pytest
import torch

from llmprof.errors import CapabilityError
from llmprof.instruments.gpu_info import gpu_info
from tests.fakes import FakeNvml


def torch_tells(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    properties = {
        "name": "NVIDIA H100",
        "uuid": "0b6e",
        "total_memory": 85_000_000_000,
        "major": 9,
        "minor": 0,
        "multi_processor_count": 132,
        "L2_cache_size": 52_428_800,
        "is_integrated": 0,
    } | changes
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**properties)
    )


def test_torch_and_nvml_together(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_tells(monkeypatch)
    nvml = FakeNvml()
    gpu = gpu_info("cuda:0", nvml=nvml)
    assert (gpu.name, gpu.compute_capability, gpu.multiprocessors) == ("NVIDIA H100", "9.0", 132)
    assert (gpu.memory_bytes, gpu.l2_bytes) == (85_000_000_000, 52_428_800)
    assert (gpu.power_limit_w, gpu.driver_version, gpu.mig) == (700, "570.86", False)
    assert gpu.unified_memory is False
    assert gpu.missing == {}
    assert nvml.shutdowns == 1


def test_unified_memory_has_torch_s_total_though_nvml_knows_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch_tells(monkeypatch, total_memory=128_000_000_000, is_integrated=1)
    gpu = gpu_info("cuda:0", nvml=FakeNvml(failing=["nvmlDeviceGetMemoryInfo"]))
    assert (gpu.memory_bytes, gpu.unified_memory) == (128_000_000_000, True)


def test_a_device_that_nvml_does_not_know_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_tells(monkeypatch, uuid="ffff")
    gpu = gpu_info("cuda:0", nvml=FakeNvml())
    assert gpu.driver_version is None
    assert "ffff" in gpu.missing["nvml"]


def test_no_cuda_is_one_line_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: str) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch.cuda, "get_device_properties", refuse)
    with pytest.raises(CapabilityError, match="cuda:0 cannot be used") as caught:
        gpu_info("cuda:0")
    assert "llmprof doctor" in caught.value.line()
