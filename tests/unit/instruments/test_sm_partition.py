"""Green contexts of several versions of torch and of the driver, none of which is here."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from llmprof.errors import CapabilityError
from llmprof.instruments import green_stream, sm_partition
from llmprof.instruments.green_stream import GreenStream
from llmprof.instruments.sm_partition import SmPartition, half_of


class Log:
    def __init__(self) -> None:
        self.calls: list[str] = []

    @contextlib.contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        self.calls.append(f"in {stream}")
        yield
        self.calls.append("out")


class Driver:
    """Says which of its functions were called; the last one makes a stream."""

    def __init__(self, *, status: int = 0, lacks: str = "") -> None:
        self.calls: list[str] = []
        self.sizes: list[int] = []
        self._status = status
        self._lacks = lacks

    def __getattr__(self, name: str) -> Any:
        if name == self._lacks:
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            self.calls.append(name)
            if name == "cuDevSmResourceSplitByCount":
                self.sizes.append(arguments[-1])
            if name == "cuGreenCtxStreamCreate":
                arguments[0]._obj.value = 0x5EED
            return self._status

        return function


ALL_CALLS = [
    "cuDeviceGetDevResource",
    "cuDevSmResourceSplitByCount",
    "cuDevResourceGenerateDesc",
    "cuGreenCtxCreate",
    "cuGreenCtxStreamCreate",
]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: made.calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "stream", made.stream)
    return made


def enter_twice(partition: SmPartition, log: Log) -> None:
    for _ in range(2):
        with partition.entered():
            log.calls.append("work")


@pytest.mark.parametrize("says_so", [True, False])
def test_a_torch_with_streams(says_so: bool, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    """torch 2.14 has no constant any more that says whether it was built for CUDA."""
    from torch.cuda import green_contexts

    asked: list[dict[str, int]] = []

    class GreenContext:
        @staticmethod
        def create(**wanted: int) -> SimpleNamespace:
            asked.append(wanted)
            return SimpleNamespace(Stream=lambda: "its stream")

        Stream = None

    monkeypatch.setattr(green_contexts, "SUPPORTED", True, raising=False)
    if not says_so:
        monkeypatch.delattr(green_contexts, "SUPPORTED")
    monkeypatch.setattr(green_contexts, "GreenContext", GreenContext)
    enter_twice(SmPartition("cuda:1", 64), log)
    assert log.calls == 2 * ["synchronize", "in its stream", "work", "synchronize", "out"]
    assert asked == [{"num_sms": 64, "device_id": 1}]


class NoStreams:
    pass


class Refusing:
    Stream = None

    @staticmethod
    def create(**_: int) -> None:
        raise RuntimeError("GreenContext requires the cuda.bindings package")


class WithoutOne:
    Stream = None

    @staticmethod
    def create(**_: int) -> "WithoutOne":
        return WithoutOne()

    def __getattribute__(self, name: str) -> object:
        def refuse() -> None:
            raise RuntimeError("operation not supported")

        return refuse if name == "Stream" else object.__getattribute__(self, name)


@pytest.mark.parametrize("context", [NoStreams, Refusing, WithoutOne])
def test_a_torch_without_takes_a_stream_of_the_driver(
    context: type, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    """Not its current context: kernels that are loaded already belong to another one."""
    from torch.cuda import green_contexts

    driver = Driver()
    monkeypatch.setattr(green_contexts, "GreenContext", context)
    monkeypatch.setattr(green_stream, "_opened", lambda: driver)
    monkeypatch.setattr(
        torch.cuda, "ExternalStream", lambda address, device: f"{address:#x} of {device}"
    )
    enter_twice(SmPartition("cuda:1", 64), log)
    assert log.calls == 2 * ["synchronize", "in 0x5eed of 1", "work", "synchronize", "out"]
    assert driver.calls == ALL_CALLS
    assert driver.sizes == [64]


def test_a_driver_that_refuses_or_is_too_old() -> None:
    with pytest.raises(CapabilityError, match=r"cuDeviceGetDevResource .* error 801"):
        GreenStream(0, 64, library=Driver(status=801))
    with pytest.raises(CapabilityError, match="no cuGreenCtxStreamCreate"):
        GreenStream(0, 64, library=Driver(lacks="cuGreenCtxStreamCreate"))


def test_a_machine_without_a_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sm_partition, "_context_of_torch", lambda num_sms, index: None)
    monkeypatch.setattr(green_stream, "_LIBRARY", "libcuda-that-is-not-here.so")
    with pytest.raises(CapabilityError, match="cannot be opened"):
        SmPartition("cuda:0", 64)


@pytest.mark.parametrize(("all_of_them", "half"), [(132, 64), (108, 48), (148, 72), (14, 8)])
def test_half_of_the_multiprocessors_in_eights(all_of_them: int, half: int) -> None:
    assert half_of(all_of_them) == half
