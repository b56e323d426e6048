from dataclasses import dataclass, field

import pytest

from llmprof.instruments.clock import CudaEventTimer, HostClock, HostTimer, device_timer
from tests.fakes import FakeClock


def test_host_clock_moves_forward() -> None:
    clock = HostClock()
    first = clock.now_ns()
    assert clock.now_ns() >= first > 0


def test_host_timer_is_the_clock() -> None:
    clock = FakeClock(now_ns=1_000)
    timer = HostTimer(clock)
    begin = timer.mark()
    clock.advance(2_500_000)
    end = timer.mark()
    timer.synchronize()
    assert timer.elapsed_s(begin, end) == 0.0025


@dataclass
class _Stream:
    """Where fake events land; time passes by 3 ms between two of them."""

    device: object
    recorded: int = 0


@dataclass
class _Event:
    enable_timing: bool
    time_ms: float = -1.0

    def record(self, stream: _Stream) -> None:
        stream.recorded += 1
        self.time_ms = 3.0 * stream.recorded

    def elapsed_time(self, end: "_Event") -> float:
        assert self.enable_timing
        return end.time_ms - self.time_ms


@dataclass
class _Cuda:
    """The part of `torch.cuda` that the timer uses."""

    streams: list[_Stream] = field(default_factory=list)
    synchronized: list[object] = field(default_factory=list)

    def current_stream(self, device: object) -> _Stream:
        self.streams.append(_Stream(device))
        return self.streams[-1]

    def synchronize(self, device: object) -> None:
        self.synchronized.append(device)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> _Cuda:
    import torch

    fake = _Cuda()
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    monkeypatch.setattr(torch.cuda, "current_stream", fake.current_stream)
    monkeypatch.setattr(torch.cuda, "synchronize", fake.synchronize)
    return fake


def test_cuda_timer_tells_seconds_on_the_stream_of_its_device(cuda: _Cuda) -> None:
    timer = CudaEventTimer("cuda:1", capacity=4)
    begin, _, end = timer.mark(), timer.mark(), timer.mark()
    timer.synchronize()
    assert timer.elapsed_s(begin, end) == pytest.approx(0.006)
    assert [str(stream.device) for stream in cuda.streams] == ["cuda:1"]
    assert [str(device) for device in cuda.synchronized] == ["cuda:1"]


def test_cuda_timer_reuses_its_events_and_grows_when_they_run_out(cuda: _Cuda) -> None:
    timer = CudaEventTimer("cuda:0", capacity=2)
    assert cuda.streams[0].recorded == 2, "events are created before the first step"
    marks = [timer.mark() for _ in range(5)]
    assert marks == [0, 1, 2, 3, 4]
    timer.reset()
    assert timer.mark() == 0
    assert len(cuda.streams) == 2, "a reset follows the stream that is current then"
    assert cuda.streams[1].recorded == 1


def test_only_a_device_with_its_own_clock_has_a_timer(cuda: _Cuda) -> None:
    assert device_timer("cpu") is None
    assert isinstance(device_timer("cuda:0"), CudaEventTimer)
