"""Alpha of a GPU on a modelled one: 3 us + bytes / 4 TB/s in a stream, a third of that in a graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

from llmprof.analysis.fixed_cost import GroupFixedCost, in_graph
from llmprof.ceilings import device_fixed_cost as measured
from llmprof.ceilings.line_fit import line_through
from llmprof.ceilings.read_kernels import ReadKernel
from llmprof.schema.ceilings import FixedCost
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.settings import RunConfig

MIB, L2 = 1 << 20, 50 << 20
STREAM_S, GRAPH_S, SMALL_S, SMALL_GRAPH_S = 3e-6, 1e-6, 1.5e-6, 0.8e-6
BYTES_PER_S = 4e12


@dataclass
class Device:
    """Keeps what was launched; a graph that captures takes it instead."""

    launched: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    capturing: "Graph | None" = None
    in_graph: bool = False

    def run(self, num_bytes: int) -> None:
        (self.launched if self.capturing is None else self.capturing.nodes).append(num_bytes)

    def seconds(self) -> float:
        kernels = (GRAPH_S, SMALL_GRAPH_S) if self.in_graph else (STREAM_S, SMALL_S)
        return sum(
            kernels[0] + size / BYTES_PER_S if size else kernels[1] for size in self.launched
        )


class Graph:
    device: Device

    def __init__(self) -> None:
        self.nodes: list[int] = []

    def replay(self) -> None:
        self.device.launched += self.nodes
        self.device.in_graph = True


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    fake = Device()
    Graph.device = fake

    class Stopwatch:
        def __init__(self, name: str, *, held_back_s: float) -> None:
            assert held_back_s > 200 * 25e-6, "the host would be the longer side"

        def time_s(self, call: Callable[[], object]) -> float:
            fake.launched, fake.in_graph = [], False
            call()
            return fake.seconds()

    @contextmanager
    def captured(graph: Graph) -> Iterator[None]:
        fake.capturing = graph
        yield
        fake.capturing = None

    def read(data: torch.Tensor, passes: int) -> None:
        assert passes == 1
        fake.reads.append(data.data_ptr())
        fake.run(data.nbytes)

    monkeypatch.setattr(measured, "Stopwatch", Stopwatch)
    monkeypatch.setattr(
        measured, "random_pool", lambda size, *_: torch.empty(size // 4, dtype=torch.float32)
    )
    monkeypatch.setattr(measured, "read_kernels", lambda _: (ReadKernel("a reader", read),))
    monkeypatch.setattr(measured, "_tiny_kernel", lambda _: lambda: fake.run(0))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", captured)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    return fake


@pytest.mark.usefixtures("device")
def test_each_cost_is_told_apart() -> None:
    found = measured.measure_device_fixed_cost("cuda:0", L2)
    assert found.alpha_s == pytest.approx(STREAM_S)
    assert found.graph_s == pytest.approx(GRAPH_S)
    assert found.small_s == pytest.approx(SMALL_S)
    assert found.small_graph_s == pytest.approx(SMALL_GRAPH_S)
    assert found.spread == pytest.approx(0.0, abs=1e-6)
    assert found.fit_error == pytest.approx(0.0, abs=1e-6)
    assert found.launch_s is not None
    assert "1.00 MiB to 1.00 GiB" in found.method


def test_nothing_is_read_again_before_twice_the_l2_has_passed(device: Device) -> None:
    """Of the smallest reads: a hundred of 1 MiB in a row, all from other addresses."""
    measured.measure_device_fixed_cost("cuda:0", L2)
    first = device.reads[: 2 * L2 // MIB]
    assert len(set(first)) == len(first) == 100
    assert max(first) - min(first) >= 2 * L2 - MIB


def test_a_device_without_graphs(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(graph: Graph) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", refused)
    found = measured.measure_device_fixed_cost("cuda:0", None)
    assert (found.graph_s, found.small_graph_s) == (None, None)
    assert found.alpha_s == pytest.approx(STREAM_S)


def test_the_line_of_least_relative_errors() -> None:
    """Noise of 1 % at 1 GiB, 2.7 us, would move an intercept of plain least squares by far more."""
    sizes = [1 << power for power in range(20, 31, 2)]
    times = [STREAM_S + size / BYTES_PER_S for size in sizes]
    times[-1] *= 1.01
    line = line_through(sizes, times)
    assert line.alpha_s == pytest.approx(STREAM_S, rel=0.02)
    assert line.bytes_per_s == pytest.approx(BYTES_PER_S, rel=0.01)
    assert 0.002 < line.worst_error < 0.01


FIXED = FixedCost(
    alpha_s=3e-6, spread=0.1, method="m", graph_s=1e-6, small_s=1.5e-6, small_graph_s=0.8e-6
)


@pytest.mark.parametrize(
    ("group", "eager_s", "graph_s"),
    [
        (OpGroup.GATE_UP_PROJECTION, 3e-6, 1e-6),
        (OpGroup.ATTENTION, 3e-6, 1e-6),
        (OpGroup.NORM, 1.5e-6, 0.8e-6),
        (OpGroup.COMMUNICATION, 0.0, 0.0),
    ],
)
def test_the_alpha_of_a_group_in_a_mode(group: OpGroup, eager_s: float, graph_s: float) -> None:
    """What streams memory pays for ramp and tail, what works in caches does not."""
    for graph, expected_s in ((False, eager_s), (True, graph_s)):
        assert GroupFixedCost.of(FIXED, None, in_graph=graph).group_s(group, 1) == expected_s


def test_spread_goes_with_both() -> None:
    _, low, high = GroupFixedCost.of(FIXED, None).variants
    assert low.group_s(OpGroup.NORM, 1) == pytest.approx(1.35e-6)
    assert high.group_s(OpGroup.GATE_UP_PROJECTION, 1) == pytest.approx(3.3e-6)


def test_a_cpu_and_older_files_have_one_alpha() -> None:
    old = FixedCost(alpha_s=2e-6, spread=0.0, method="m")
    for graph in (False, True):
        assert GroupFixedCost.of(old, None, in_graph=graph).group_s(OpGroup.NORM, 3) == 6e-6


def test_only_decode_steps_are_replayed() -> None:
    config = RunConfig.model_validate(
        {"model": "smollm2-135m", "execution": {"mode": "cuda_graph"}}
    )
    assert in_graph(config, Phase.DECODE)
    assert not in_graph(config, Phase.PREFILL)
    eager = RunConfig.model_validate({"model": "smollm2-135m"})
    assert not in_graph(eager, Phase.DECODE)
