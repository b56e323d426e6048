import pytest

from llmprof.errors import CapabilityError
from llmprof.instruments import diagnosis as module
from llmprof.instruments.checks import gpu, quiet, software
from llmprof.instruments.checks.gpu import GpusSeen
from llmprof.instruments.checks.outcome import ok
from llmprof.instruments.checks.software import TorchRuntime
from llmprof.instruments.diagnosis import diagnose
from llmprof.instruments.libraries import TorchBuild
from llmprof.schema.environment import Environment
from tests.unit.instruments.environments import an_environment


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "check_quiet", lambda threads: ok("quiet machine", f"{threads}"))


def statuses() -> dict[str, str]:
    diagnosis = diagnose()
    names = [check.name for check in diagnosis.checks]
    assert len(names) == len(set(names))
    return {check.name: check.status for check in diagnosis.checks}


def test_this_machine_has_every_check_and_torch_works() -> None:
    found = statuses()
    assert found["torch"] in ("ok", "warn")
    assert set(found) >= {
        *("torch", "CUDA", "cores", "memory", "CPU clock", "OpenMP", "quiet machine", "matmul"),
        *("DRAM counters", "numba", "C compiler", "demo model"),
    }


def test_without_torch_everything_else_is_still_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "torch_build", lambda: None)
    monkeypatch.setattr(software, "torch_runtime", lambda: TorchRuntime("No module named 'torch'"))
    found = statuses()
    assert found["torch"] == "missing"
    assert "matmul" not in found
    assert "cores" in found


def test_a_cpu_build_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "torch_build", lambda: TorchBuild("2.13.0+cpu", None))
    monkeypatch.setattr(gpu, "gpus_seen", lambda: GpusSeen(("NVIDIA H100",), None, True))
    found = statuses()
    assert (found["CUDA"], found["GPU sensors"]) == ("missing", "missing")


def test_the_environment_is_of_the_device_that_a_run_would_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def snapshot(device: str, threads: int) -> Environment:
        asked.append(device)
        if device != "cpu":
            raise CapabilityError("the driver is broken")
        return an_environment()

    monkeypatch.setattr(module, "snapshot", snapshot)
    monkeypatch.setattr(software, "torch_runtime", lambda: TorchRuntime(None, 1))
    assert diagnose().environment.device == "cpu"
    assert asked == ["cuda:0", "cpu"]
