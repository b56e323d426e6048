from pathlib import Path

import pytest

from llmprof.instruments.checks import gpu
from llmprof.instruments.checks.gpu import GpusSeen
from llmprof.instruments.checks.nvml_remedy import nvml_remedy
from llmprof.instruments.checks.software import TorchRuntime
from llmprof.instruments.libraries import TorchBuild
from llmprof.instruments.nvml import (
    HIDDEN_PROCESSES,
    SHARED_BOARD,
    NvmlUnavailable,
    open_nvml,
)
from llmprof.schema.diagnosis import Check
from tests.fakes import FakeNvml
from tests.unit.instruments.environments import a_gpu, an_environment
from tests.unit.instruments.system_tree import write_tree

CPU_BUILD = TorchBuild("2.13.0+cpu", None)
CUDA_BUILD = TorchBuild("2.13.0+cu128", "12.8")
NO_GPU = GpusSeen((), "NVML Shared Library Not Found", driver_loaded=False)
ONE_GPU = GpusSeen(("NVIDIA H100",), None, driver_loaded=True)
DRIVER_ONLY = GpusSeen((), "Driver/library version mismatch", driver_loaded=True)
NONE_USABLE = TorchRuntime(None, 0)


@pytest.mark.parametrize(
    ("build", "devices", "seen", "status", "words"),
    [
        (CPU_BUILD, 0, NO_GPU, "ok", "no NVIDIA GPU"),
        (None, 0, NO_GPU, "ok", "no NVIDIA GPU"),
        (CUDA_BUILD, 2, ONE_GPU, "ok", "can use 2 GPUs"),
        (
            CPU_BUILD,
            0,
            ONE_GPU,
            "missing",
            "NVIDIA H100 is here, but torch 2.13.0+cpu is a CPU build",
        ),
        (CPU_BUILD, 0, DRIVER_ONLY, "missing", "an NVIDIA driver is here"),
        (CUDA_BUILD, 0, ONE_GPU, "missing", "torch for CUDA 12.8 can use no GPU"),
        (None, 0, ONE_GPU, "missing", "torch is not installed"),
    ],
)
def test_cuda(
    build: TorchBuild | None, devices: int, seen: GpusSeen, status: str, words: str
) -> None:
    check = gpu.check_cuda(build, TorchRuntime(None, devices), seen)
    assert check.status == status
    assert words in check.detail
    assert bool(check.remedy) == (status == "missing")


def sensors(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> Check | None:
    monkeypatch.setattr(
        gpu,
        "open_nvml",
        lambda uuid, holds_context: open_nvml(uuid, holds_context=holds_context, nvml=nvml),
    )
    return gpu.check_nvml(an_environment(gpu=a_gpu(uuid="0b6e")), ONE_GPU)


def test_sensors_of_a_free_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    check = sensors(monkeypatch, FakeNvml())
    assert check is not None
    assert check.status == "ok"


def test_other_processes_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    nvml.pids = [4711]
    check = sensors(monkeypatch, nvml)
    assert check is not None
    assert check.status == "warn"
    assert check.detail.startswith("1 other process")


def test_sensors_that_are_missing_are_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = sensors(monkeypatch, FakeNvml(failing=["nvmlDeviceGetPowerUsage"]))
    assert check is not None
    assert check.status == "warn"
    assert "power_w (Not Supported)" in check.detail


@pytest.mark.parametrize("failing", sorted(FakeNvml()._answers))
def test_whatever_call_fails_what_is_missing_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    check = sensors(monkeypatch, FakeNvml(failing=[failing]))
    assert check is not None
    assert bool(check.remedy) == (check.status != "ok")
    assert ("Not Supported" in check.detail) == (check.status != "ok")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("the package nvidia-ml-py cannot be imported: no module", "pip install nvidia-ml-py"),
        ("NVML Shared Library Not Found", "--gpus all"),
        ("RM has detected an NVML/RM version mismatch.", "Reboot"),
        ("Insufficient Permissions", "administrator"),
        (f"NVML lists 3 processes, none of them this one: {HIDDEN_PROCESSES}", "--pid=host"),
        (SHARED_BOARD, "CUDA_VISIBLE_DEVICES"),
        ("NVML does not find the device ffff: Not Found", "nvidia-smi"),
        ("Unknown Error", "nvidia-smi"),
    ],
)
def test_the_remedy_fits_the_reason(reason: str, words: str) -> None:
    assert words in nvml_remedy([reason])


def test_several_reasons_have_each_remedy_once() -> None:
    remedy = nvml_remedy(["Not Supported", SHARED_BOARD, "Not Supported"])
    assert remedy.count("Nothing to fix") == 1
    assert "CUDA_VISIBLE_DEVICES" in remedy


def test_sensors_of_an_unknown_device(monkeypatch: pytest.MonkeyPatch) -> None:
    check = sensors(monkeypatch, FakeNvml(uuid="GPU-else"))
    assert check is not None
    assert check.status == "missing"


def activity(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> Check | None:
    monkeypatch.setattr(
        gpu,
        "open_nvml",
        lambda uuid, holds_context: open_nvml(uuid, holds_context=holds_context, nvml=nvml),
    )
    return gpu.check_gpm(an_environment(gpu=a_gpu(uuid=nvml.uuid)))


def test_activity_counters_or_the_reason_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    check = activity(monkeypatch, FakeNvml())
    assert check is not None
    assert check.status == "ok"
    older = FakeNvml()
    older.has_gpm = False
    for nvml in (older, FakeNvml(failing=["nvmlGpmSampleAlloc"]), FakeNvml(uuid="MIG-1")):
        check = activity(monkeypatch, nvml)
        assert check is not None
        assert check.status == "missing"
        assert "ncu" in (check.remedy or "")
    assert gpu.check_gpm(an_environment()) is None


def test_no_gpu_needs_no_sensors_and_a_gpu_without_nvml_has_none() -> None:
    assert gpu.check_nvml(an_environment(), NO_GPU) is None
    check = gpu.check_nvml(an_environment(), DRIVER_ONLY)
    assert check is not None
    assert check.status == "missing"
    assert "version mismatch" in check.detail


@pytest.mark.parametrize(("value", "status"), [("1", "warn"), ("0", "ok")])
def test_counter_permission(tmp_path: Path, value: str, status: str) -> None:
    parameters = f"EnableMSI: 1\nRmProfilingAdminOnly: {value}\nDeviceFileMode: 438"
    root = write_tree(tmp_path, {"proc/driver/nvidia/params": parameters})
    check = gpu.check_profiling_permission(root)
    assert check is not None
    assert check.status == status


def test_without_a_driver_there_is_no_permission_to_check(tmp_path: Path) -> None:
    assert gpu.check_profiling_permission(tmp_path) is None


def test_gpus_that_nvml_sees_and_a_driver_without_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "load_nvml", lambda: FakeNvml())
    assert gpu.gpus_seen(tmp_path) == GpusSeen(("NVIDIA H100",), None, driver_loaded=False)
    monkeypatch.setattr(gpu, "load_nvml", lambda: NvmlUnavailable("mismatch"))
    root = write_tree(tmp_path, {"proc/driver/nvidia/version": "NVRM version: 570.86"})
    assert gpu.gpus_seen(root) == GpusSeen((), "mismatch", driver_loaded=True)
