import pytest

from llmprof.ceilings import live, matmul
from llmprof.ceilings.live import LiveCeilings
from llmprof.engine.workload import CeilingNeeds
from llmprof.errors import CapabilityError
from tests.unit.ceilings.factories import MIB, a_cpu, l2, l3, some_ceilings

MACHINE = a_cpu(l2(2 * MIB), l3(32 * MIB), threads=1)


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch, short_reads: None) -> None:
    monkeypatch.setattr(matmul, "_SHAPES_CPU", ((128, 128, 128), (256, 256, 256)))
    monkeypatch.setattr(live, "_PART_S", 0.002)
    monkeypatch.setattr(live, "_RACE_S", 0.01)
    monkeypatch.setattr(live, "_SWEEP_S", 0.05)


def test_a_reading_says_what_was_read_and_how() -> None:
    needs = CeilingNeeds(8 * MIB, "bf16", 2, ((192, 64), (64, 192), (512, 64)))
    reading = LiveCeilings(needs, MACHINE).read(1.5)
    assert reading.time_s == 1.5
    assert reading.duration_s > 0
    assert (reading.read_buffer_bytes, reading.read_level) == (8 * MIB, "LLC")
    assert reading.read_kernel in ("numba, 4 streams", "numba, 1 stream", "torch.dot", "torch.sum")
    assert reading.matmul_dtype == "bf16"
    assert reading.matmul_shape in ((128, 128, 128), (256, 256, 256))
    assert reading.matmul_flops_per_s > 0
    assert reading.skinny is not None
    assert (reading.skinny.rows, reading.skinny.dtype) == (2, "bf16")
    assert reading.skinny.kernel == "torch.nn.functional.linear"
    assert reading.skinny.bytes_per_s > 0


def test_work_without_projections_has_no_skinny_reading() -> None:
    reading = LiveCeilings(CeilingNeeds(100_000, "fp32", None, ()), MACHINE).read(0.0)
    assert reading.skinny is None
    assert (reading.read_buffer_bytes, reading.read_level) == (1 * MIB, "L2")


def test_what_was_measured_before_labels_the_level() -> None:
    needs = CeilingNeeds(8 * MIB, "int8", None, ())
    ceilings = LiveCeilings(needs, MACHINE, measured=some_ceilings(MACHINE, dram_from=6 * MIB))
    assert ceilings.read(0.0).read_level == "DRAM"


@pytest.mark.parametrize(
    "needs",
    [CeilingNeeds(MIB, "fp4", None, ()), CeilingNeeds(MIB, "int8", 1, ((64, 64), (64, 64)))],
)
def test_a_dtype_without_a_matmul_is_refused(needs: CeilingNeeds) -> None:
    with pytest.raises(CapabilityError, match=needs.compute_dtype) as refused:
        LiveCeilings(needs, MACHINE)
    assert refused.value.remedy is not None
    assert "bf16" in refused.value.remedy
