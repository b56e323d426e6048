from collections.abc import Callable

import pytest

from llmprof.ceilings import live, matmul
from llmprof.ceilings.live import LiveCeilings
from llmprof.ceilings.matmul import Contender
from llmprof.ceilings.read_kernels import read_kernels
from llmprof.ceilings.timing import Stopwatch
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.linear import kernel_name
from llmprof.engine.workload import CeilingNeeds
from llmprof.errors import CapabilityError
from tests.unit.ceilings.factories import MIB, a_cpu, l2, l3, some_ceilings

MACHINE = a_cpu(l2(2 * MIB), l3(32 * MIB), threads=1)


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch, short_reads: None) -> None:
    monkeypatch.setattr(matmul, "_SHAPES_CPU", ((128, 128, 128), (256, 256, 256)))
    monkeypatch.setattr(live, "_PART_S", 0.002)
    monkeypatch.setattr(live, "_RACE_S", 0.01)


def test_a_reading_says_what_was_read_and_how() -> None:
    needs = CeilingNeeds(8 * MIB, "bf16", 2, ((192, 64), (64, 192), (512, 64)))
    reading = LiveCeilings(needs, MACHINE).read(1.5)
    assert reading.time_s == 1.5
    assert reading.duration_s > 0
    assert (reading.read_buffer_bytes, reading.read_level) == (8 * MIB, "LLC")
    assert reading.read_kernel in [kernel.name for kernel in read_kernels("cpu")]
    assert reading.matmul_dtype == "bf16"
    assert reading.matmul_shape in ((128, 128, 128), (256, 256, 256))
    assert reading.matmul_flops_per_s > 0
    assert len(reading.matmul_calls_flops_per_s) >= 2  # both shapes had their turn
    for best, calls in (
        (reading.matmul_flops_per_s, reading.matmul_calls_flops_per_s),
        (reading.read_bytes_per_s, reading.read_calls_bytes_per_s),
    ):
        assert len(calls) <= 12
        assert max(calls) == pytest.approx(best, rel=1e-3)
    assert reading.skinny is not None
    assert (reading.skinny.rows, reading.skinny.dtype) == (2, "bf16")
    assert reading.skinny.kernel == kernel_name(2, "cpu")
    assert reading.skinny.bytes_per_s >= 0.999 * max(reading.skinny.calls_bytes_per_s) > 0


def test_a_reading_has_the_clock_of_its_matmuls() -> None:
    needs = CeilingNeeds(100_000, "fp32", None, ())
    clocks_hz = iter([1.41e9, None, 0.0])
    ceilings = LiveCeilings(needs, MACHINE, sm_clock_hz=lambda: next(clocks_hz))
    assert [ceilings.read(0.0).sm_clock_hz for _ in range(3)] == [1.41e9, None, None]
    assert LiveCeilings(needs, MACHINE).read(0.0).sm_clock_hz is None


def test_the_shape_that_wins_may_change_from_reading_to_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the sweep found: a shape that is slow in one reading wins the next one."""
    seconds = {128: 1.0, 256: 1.0}

    class Modelled(Stopwatch):
        def time_s(self, call: Callable[[], object]) -> float:
            taken_s = call()
            return taken_s if isinstance(taken_s, float) else super().time_s(call)

    def product(contender: Contender) -> float:
        return seconds[contender.shape[0]]

    monkeypatch.setattr(Contender, "__call__", product)
    monkeypatch.setattr(live, "Stopwatch", Modelled)
    ceilings = LiveCeilings(CeilingNeeds(MIB, "fp32", None, ()), MACHINE)
    work = {one.shape[0]: one.flops_per_call for one in ceilings._products}
    for slow, fast in ((128, 256), (256, 128)):
        seconds[slow], seconds[fast] = 1e3, 1e-3
        reading = ceilings.read(0.0)
        assert reading.matmul_shape == (fast, fast, fast)
        assert reading.matmul_flops_per_s == pytest.approx(work[fast] / 1e-3)


def test_packed_weights_are_read_as_they_are_stored() -> None:
    needs = CeilingNeeds(4 * MIB, "bf16", 1, ((192, 64), (64, 192), (512, 64)))
    int4, int8 = WeightFormat("int4", 32, symmetric=False), WeightFormat("int8")
    ceilings = LiveCeilings(needs, MACHINE, skinny_formats=(int4, int4, int8))
    skinny = ceilings.read(0.0).skinny
    assert skinny is not None
    assert skinny.dtype == "int4_g32_asym, int8"
    assert skinny.kernel == f"{kernel_name(1, 'cpu', int4)}; {kernel_name(1, 'cpu', int8)}"
    assert skinny.bytes_per_s > 0


def test_work_without_projections_has_no_skinny_reading() -> None:
    reading = LiveCeilings(CeilingNeeds(100_000, "fp32", None, ()), MACHINE).read(0.0)
    assert reading.skinny is None
    assert (reading.read_buffer_bytes, reading.read_level) == (1 * MIB, "L2")


def test_what_was_measured_before_labels_the_level() -> None:
    needs = CeilingNeeds(8 * MIB, "int8", None, ())
    ceilings = LiveCeilings(needs, MACHINE, measured=some_ceilings(MACHINE, dram_from=6 * MIB))
    assert ceilings.read(0.0).read_level == "DRAM"


def test_shapes_are_sifted_by_the_rate_that_this_device_is_known_to_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2 TFLOP/s in bf16 before; nothing is known of fp32."""
    known: list[object] = []

    def note(*_: object, known_flops_per_s: float, **__: object) -> list[Contender]:
        known.append(known_flops_per_s)
        return []

    monkeypatch.setattr(live, "best_contenders", note)
    for dtype in ("bf16", "fp32"):
        needs = CeilingNeeds(MIB, dtype, None, ())
        LiveCeilings(needs, MACHINE, measured=some_ceilings(MACHINE))
    assert known == [2e12, 0.0]


@pytest.mark.parametrize(
    "needs",
    [CeilingNeeds(MIB, "fp4", None, ()), CeilingNeeds(MIB, "int8", 1, ((64, 64), (64, 64)))],
)
def test_a_dtype_without_a_matmul_is_refused(needs: CeilingNeeds) -> None:
    with pytest.raises(CapabilityError, match=needs.compute_dtype) as refused:
        LiveCeilings(needs, MACHINE)
    assert refused.value.remedy is not None
    assert "bf16" in refused.value.remedy
