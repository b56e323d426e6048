import torch
from torch.utils._python_dispatch import TorchDispatchMode

from llmprof.engine.kernels.launch import recorded_launches, runs_native
from llmprof.engine.kernels.native import NativeKernel
from llmprof.engine.kernels.norm import rms_norm


class Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Launches:
    def __init__(self) -> None:
        self.shared: list[bool] = []

    def launched(self, kernel: NativeKernel, arguments: tuple[int, ...], *, shared: bool) -> None:
        self.shared.append(shared)


def test_a_watcher_sees_an_operator_and_the_same_numbers() -> None:
    x, gains = torch.randn(2, 32), torch.ones(32)
    with Watcher() as watcher:
        watched = rms_norm(x, gains, 1e-5)
    assert watcher.seen == ["llmprof.rms_norm.default"]
    assert torch.equal(watched, rms_norm(x, gains, 1e-5))


def test_compilers_know_shapes_without_running_anything() -> None:
    with torch.device("meta"):
        x, gains = torch.empty(2, 32), torch.empty(32)
    assert torch.ops.llmprof.rms_norm(x, gains, 1e-5).shape == (2, 32)


def test_only_work_that_is_worth_it_is_shared() -> None:
    launches = Launches()
    with recorded_launches(launches):
        rms_norm(torch.randn(1, 64), torch.ones(64), 1e-5)
        rms_norm(torch.randn(2048, 64), torch.ones(64), 1e-5)
    rms_norm(torch.randn(1, 64), torch.ones(64), 1e-5)
    assert launches.shared == [False, True]


def test_kernels_are_for_cpus() -> None:
    assert runs_native("cpu")
    assert runs_native(torch.ones(1))
    assert not runs_native("cuda:0")
