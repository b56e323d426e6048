import pytest

from llmprof.analysis.plausibility import plausibility_caveats
from llmprof.analysis.report import build_report
from llmprof.analysis.utilization import with_utilization
from llmprof.devices.lookup import find_device
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.report import Report, RooflinePoint
from tests.records import a_report, a_run_record
from tests.unit.ceilings.factories import a_cpu, a_gpu, some_ceilings

GIB = 1 << 30


def sheet(name: str, gib: float) -> Datasheet:
    found = find_device(name, memory_bytes=round(gib * GIB))
    assert isinstance(found, Datasheet)
    return found


def a_point(flops_per_s: float, bytes_per_s: float) -> RooflinePoint:
    """The default run's prefill at other rates."""
    point = a_report().points[0]
    rates = {"achieved_flops_per_s": flops_per_s, "achieved_bytes_per_s": bytes_per_s}
    changed = {
        name: getattr(point, name).model_copy(update=dict.fromkeys(("low", "point", "high"), rate))
        for name, rate in rates.items()
    }
    return point.model_copy(update={"dtype": "bf16", **changed})


def test_mfu_is_over_the_dense_peak() -> None:
    """420 TFLOP/s on an H200 are 420/989.5 = 42.4 %; over its sparse peak it would be 21.2 %."""
    point = with_utilization(a_point(420e12, 2.4e12), sheet("NVIDIA H200", 140.4))
    assert point.mfu == pytest.approx(0.42446, abs=1e-5)
    assert point.mbu == pytest.approx(0.5)


def test_a_geforce_accumulates_in_fp32_at_half_rate() -> None:
    point = with_utilization(a_point(82.6e12, 504e9), sheet("NVIDIA GeForce RTX 4090", 23.99))
    assert point.mfu == pytest.approx(0.5)
    assert point.mbu == pytest.approx(0.5)


def test_an_unknown_device_or_dtype_has_no_share() -> None:
    point = a_point(1e12, 1e9)
    assert with_utilization(point, None) == point
    v100 = sheet("Tesla V100-SXM2-32GB", 31.7)
    assert with_utilization(point, v100).mfu is None  # it has no bf16
    report = a_report()
    assert report.datasheet is None
    assert "does not know" in (report.no_datasheet or "")


def of_gpu(*, read: float = 4.2e12, bf16: float = 700e12, power_w: float | None = 700) -> Ceilings:
    """Ceilings of an H200."""
    machine = a_gpu()
    assert machine.gpu is not None
    gpu = machine.gpu.model_copy(update={"power_limit_w": power_w})
    ceilings = some_ceilings(machine.model_copy(update={"gpu": gpu}))
    bandwidth = ceilings.bandwidth[0].model_copy(update={"bytes_per_s": read, "level": "HBM"})
    compute = ceilings.compute[0].model_copy(update={"flops_per_s": bf16})
    return ceilings.model_copy(update={"bandwidth": (bandwidth,), "compute": (compute,)})


@pytest.mark.parametrize(
    ("ceilings", "codes"),
    [
        (of_gpu(), []),
        (of_gpu(read=5.2e12), ["above-datasheet"]),
        (of_gpu(read=2.4e12), ["far-below-datasheet"]),
        (of_gpu(bf16=1400e12), ["above-datasheet"]),
        (of_gpu(bf16=400e12), ["far-below-datasheet"]),
        (of_gpu(power_w=500), ["power-limited"]),
        (of_gpu(power_w=None), []),
    ],
)
def test_a_ceiling_that_cannot_be_true_is_said(ceilings: Ceilings, codes: list[str]) -> None:
    found = plausibility_caveats(ceilings, (), sheet("NVIDIA H200", 140.4))
    assert [caveat.code for caveat in found] == codes


def test_few_cores_of_a_cpu_may_stay_far_below_their_socket() -> None:
    ceilings = some_ceilings(a_cpu())  # DRAM at 30 GB/s
    epyc = find_device("AMD EPYC 9654 96-Core Processor", logical_processors=192)
    assert isinstance(epyc, Datasheet)
    assert plausibility_caveats(ceilings, (), epyc) == ()


def test_more_than_all_of_a_peak_is_shown_and_said() -> None:
    h200 = sheet("NVIDIA H200", 140.4)
    point = with_utilization(a_point(2e15, 1e12), h200)
    assert point.mfu is not None
    assert point.mfu > 2
    (caveat,) = plausibility_caveats(of_gpu(), (point,), h200)
    assert caveat.code == "above-datasheet"
    assert "MFU is 202 %" in caveat.message


def test_a_run_on_a_known_device_has_both_in_its_report() -> None:
    record = a_run_record()
    name = "AMD EPYC 9654 96-Core Processor"
    cpu = record.environment.cpu.model_copy(update={"model": name, "logical_cores": 192})
    environment = record.environment.model_copy(update={"cpu": cpu, "device_name": name})
    report: Report = build_report(record.model_copy(update={"environment": environment}))
    assert report.datasheet is not None
    assert report.no_datasheet is None
    decode = next(point for point in report.points if point.label == "decode")
    assert decode.mfu is None
    assert decode.mbu == pytest.approx(decode.achieved_bytes_per_s.point / 460.8e9)
