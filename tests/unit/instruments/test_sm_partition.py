"""Green contexts of several versions of torch, none of which is here."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from llmprof.errors import CapabilityError
from llmprof.instruments.sm_partition import SmPartition, half_of


class Log:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def context(self, *, streams: bool) -> SimpleNamespace:
        add = self.calls.append
        both = {"set_context": lambda: add("set"), "pop_context": lambda: add("pop")}
        return SimpleNamespace(**({"Stream": lambda: "its stream"} if streams else both))

    @contextlib.contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        self.calls.append(f"in {stream}")
        yield
        self.calls.append("out")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: made.calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "stream", made.stream)
    return made


def offer(monkeypatch: pytest.MonkeyPatch, log: Log, *, streams: bool) -> list[dict[str, int]]:
    from torch.cuda import green_contexts

    asked: list[dict[str, int]] = []

    def create(**wanted: int) -> SimpleNamespace:
        asked.append(wanted)
        return log.context(streams=streams)

    monkeypatch.setattr(green_contexts, "SUPPORTED", True)
    monkeypatch.setattr(green_contexts, "GreenContext", SimpleNamespace(create=create))
    return asked


def test_a_version_with_streams(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    asked = offer(monkeypatch, log, streams=True)
    partition = SmPartition("cuda:1", 64)
    for _ in range(2):
        with partition.entered():
            log.calls.append("work")
    once = ["synchronize", "in its stream", "work", "synchronize", "out"]
    assert log.calls == 2 * once
    assert asked == [{"num_sms": 64, "device_id": 1}]


def test_a_version_without_leaves_even_after_an_error(
    monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    offer(monkeypatch, log, streams=False)
    partition = SmPartition("cuda:0", 64)
    with pytest.raises(ValueError, match="work"), partition.entered():
        raise ValueError("work")
    assert log.calls == ["synchronize", "set", "pop"]


def test_a_build_without_them_is_told() -> None:
    with pytest.raises(CapabilityError, match="no green contexts"):
        SmPartition("cuda:0", 64)


@pytest.mark.parametrize(("all_of_them", "half"), [(132, 64), (108, 48), (148, 72), (14, 8)])
def test_half_of_the_multiprocessors_in_eights(all_of_them: int, half: int) -> None:
    assert half_of(all_of_them) == half
