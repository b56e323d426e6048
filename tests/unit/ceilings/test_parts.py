"""Sustained matmuls, host cost, collectives and skinny formats: what is counted and how."""

from types import SimpleNamespace

import pytest
import torch

from llmprof.ceilings import host_cost, skinny_formats, sustained
from llmprof.ceilings.collectives import SIZES_BYTES, fit_line
from llmprof.ceilings.host_cost import measure_host_costs
from llmprof.ceilings.skinny_formats import ROWS, measure_skinny
from llmprof.ceilings.sustained import measure_sustained
from llmprof.ceilings.timing import Stopwatch
from llmprof.engine.probe import Probe, wants_groups
from llmprof.schema.settings import ExecutionMode
from llmprof.store.progress import NullProgress
from tests.unit.ceilings.factories import MIB, a_cpu, l3, some_ceilings

ONE_THREAD = a_cpu(l3(8 * MIB), threads=1)


def test_a_line_through_the_sizes_gives_alpha_and_bandwidth() -> None:
    times_s = [50e-6 + size / 2e9 for size in SIZES_BYTES]
    line = fit_line("all_reduce", times_s, backend="gloo", world_size=2)
    assert line.alpha_s == pytest.approx(50e-6)
    assert line.bytes_per_s == pytest.approx(2e9)
    assert line.spread == pytest.approx(0.0, abs=1e-9)


def test_a_size_off_the_line_is_told() -> None:
    times_s = [50e-6 + size / 2e9 for size in SIZES_BYTES]
    times_s[2] *= 2
    line = fit_line("all_reduce", times_s, backend="gloo", world_size=2)
    assert line.spread > 0.2


def test_only_the_second_half_of_the_time_is_sustained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that falls to half after a second of four: the burst must not show."""
    now_s = [0.0]
    monkeypatch.setattr(sustained, "time", SimpleNamespace(perf_counter=lambda: now_s[0]))

    class Throttling(Stopwatch):
        def rate(self, call: object, work: float) -> float:
            now_s[0] += 0.1
            return 2e12 if now_s[0] < 1.0 else 1e12

    class OneContender:
        shape = (256, 256, 256)
        flops_per_call = 1.0

        class kernel:  # noqa: N801 (an attribute)
            name = "torch.mm"

    monkeypatch.setattr(sustained, "Stopwatch", Throttling)
    monkeypatch.setattr(sustained, "best_contenders", lambda *_, **__: [OneContender])
    burst = some_ceilings(a_cpu()).compute
    (found,) = measure_sustained(
        burst,
        "cpu",
        seconds_each=4.0,
        progress=NullProgress(),
        sm_clock_hz=lambda: 1.8e9 if now_s[0] < 1.5 else 1.2e9,
    )
    assert found.flops_per_s == 1e12
    assert found.regime == "sustained"
    assert found.measured_s == pytest.approx(4.0, abs=0.11)
    assert burst[0].regime == "burst"
    assert found.sm_clock_hz == 1.2e9


def test_a_gpu_gets_no_pause_between_calls() -> None:
    """At 700 TFLOP/s a product of 8192 x 8192 x 8192 takes 1.57 ms: 64 of them are 0.1 s."""
    burst = some_ceilings(a_cpu()).compute[0].model_copy(update={"flops_per_s": 700e12})
    assert sustained._products_per_call(burst, (8192, 8192, 8192)) == 64
    assert sustained._products_per_call(burst, (1 << 17, 1 << 17, 1 << 14)) == 1


def test_host_cost_of_each_mode_that_the_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_cost, "_STEPS", 4)
    with torch.inference_mode():
        costs = measure_host_costs(ONE_THREAD, "cpu", budget_s=0.0, progress=NullProgress())
    assert [cost.mode for cost in costs] in (["eager"], ["eager", "compiled"])
    assert all(cost.seconds_per_step > 0 for cost in costs)


def test_on_a_gpu_a_step_is_run_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An observer of groups would make a graph go kernel by kernel: another mode's cost."""
    seen: list[bool] = []

    class Workload:
        def run_round(self, probe: Probe) -> None:
            seen.append(wants_groups(probe))

    monkeypatch.setattr(host_cost, "_modes", lambda device: (ExecutionMode.CUDA_GRAPH,))
    monkeypatch.setattr(host_cost, "_workload", lambda *_: Workload())
    (cost,) = measure_host_costs(ONE_THREAD, "cuda:0", budget_s=0.0, progress=NullProgress())
    assert seen
    assert not any(seen)
    assert "read before" not in cost.method


def test_the_slope_over_layers_and_the_step_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 layers in 300 us and 12 in 800: 50 us for each."""
    times = {2: [310e-6, 300e-6], 12: [800e-6, 900e-6]}
    monkeypatch.setattr(host_cost, "_step_times_s", lambda mode, layers, *rest: times[layers])
    costs = measure_host_costs(ONE_THREAD, "cpu", budget_s=1.0, progress=NullProgress())
    assert costs[0].seconds_per_step == 300e-6
    assert costs[0].seconds_per_layer == pytest.approx(50e-6)


def test_each_format_at_each_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skinny_formats, "working_set_bytes", lambda environment, device: 4 * MIB)
    monkeypatch.setattr(skinny_formats, "SHAPE", (256, 256))
    monkeypatch.setattr(skinny_formats, "ROWS", (1, 8))
    formats = skinny_formats.skinny_formats("cpu")
    assert len({one.name for one in formats}) == len(formats)
    few = formats[:1] + formats[-1:]
    monkeypatch.setattr(skinny_formats, "skinny_formats", lambda device: few)
    with torch.inference_mode():
        found = measure_skinny(ONE_THREAD, "cpu", (), budget_s=0.0, progress=NullProgress())
    assert [(one.format, one.rows) for one in found] == [
        (one.name, rows) for one in few for rows in (1, 8)
    ]
    assert {one.level for one in found} == {"LLC"}
    assert ROWS == (1, 8, 32)
