"""Names as drivers, torch and /proc/cpuinfo really spell them, and what each of them is."""

import pytest

from llmprof.devices.lookup import NoDatasheet, datasheet_of, find_device
from llmprof.schema.datasheet import Datasheet
from tests.unit.ceilings.factories import a_cpu, a_gpu, l3

GIB = 1 << 30
MIB = 1 << 20


def found(name: str, memory_bytes: int | None = None, processors: int | None = None) -> Datasheet:
    device = find_device(name, memory_bytes=memory_bytes, logical_processors=processors)
    assert isinstance(device, Datasheet), device
    return device


@pytest.mark.parametrize(
    ("name", "memory_mib", "bf16_tera", "gb_per_s"),
    [
        ("NVIDIA H100 80GB HBM3", 81_559, 989.4, 3350),
        ("NVIDIA H100 PCIe", 81_559, 756.5, 2000),
        ("NVIDIA H100 NVL", 95_830, 835.5, 3900),
        ("NVIDIA H200", 143_771, 989.5, 4800),
        ("NVIDIA H200 NVL", 143_771, 835.5, 4800),
        ("NVIDIA H20", 97_871, 148, 4000),
        ("NVIDIA H20-3e", 143_771, 148, 4800),
        ("NVIDIA GH200 480GB", 97_871, 989.5, 4000),
        ("A100-SXM4-40GB", 40_536, 312, 1555),
        ("NVIDIA A100-SXM4-80GB", 81_920, 312, 2039),
        ("NVIDIA A100 80GB PCIe", 81_920, 312, 1935),
        ("NVIDIA A100-PCIE-40GB", 40_960, 312, 1555),
        ("NVIDIA A10", 23_028, 125, 600),
        ("NVIDIA A10G", 22_731, 70, 600),
        ("NVIDIA L4", 23_034, 121, 300),
        ("NVIDIA L40", 46_068, 181.05, 864),
        ("NVIDIA L40S", 46_068, 362.05, 864),
        ("NVIDIA B200", 183_359, 2250, 8000),
        ("NVIDIA RTX A6000", 46_068, 154.8, 768),
        ("NVIDIA RTX 6000 Ada Generation", 46_068, 364.2, 960),
        ("NVIDIA GeForce RTX 3090", 24_268, 71, 936),
        ("NVIDIA GeForce RTX 4090", 24_564, 165.2, 1008),
        ("NVIDIA GeForce RTX 5090", 32_607, 209.5, 1792),
        ("AMD Instinct MI300X", 196_592, 1307.4, 5300),
        ("AMD Instinct MI325X", 262_128, 1307.4, 6000),
    ],
)
def test_each_form_factor_has_its_own_dense_peaks(
    name: str, memory_mib: int, bf16_tera: float, gb_per_s: float
) -> None:
    device = found(name, memory_mib * MIB)
    assert device.flops_per_s["bf16"] == pytest.approx(bf16_tera * 1e12)
    assert device.memory_bytes_per_s == pytest.approx(gb_per_s * 1e9)


@pytest.mark.parametrize(
    ("name", "gib", "gb_per_s"),
    [
        ("NVIDIA GeForce RTX 3080", 9.77, 760),
        ("NVIDIA GeForce RTX 3080", 11.76, 912),
        ("NVIDIA GeForce RTX 3060", 11.76, 360),
        ("NVIDIA GeForce RTX 3060", 7.79, 240),
        ("NVIDIA GeForce RTX 4060 Ti", 15.57, 288),
    ],
)
def test_cards_of_one_name_are_told_apart_by_their_memory(
    name: str, gib: float, gb_per_s: float
) -> None:
    device = found(name, round(gib * GIB))
    assert device.memory_bytes_per_s == pytest.approx(gb_per_s * 1e9)
    assert isinstance(find_device(name), NoDatasheet)


def test_a_laptop_has_another_bandwidth_and_no_stated_rate() -> None:
    laptop = found("NVIDIA GeForce RTX 4090 Laptop GPU", 16_376 * MIB)
    assert laptop.memory_bytes_per_s == 576e9
    assert laptop.flops_per_s == {}


@pytest.mark.parametrize(
    ("name", "processors", "gb_per_s"),
    [
        ("Apple M3 Max", 14, 300),
        ("Apple M3 Max", 16, 400),
        ("Apple M4 Max", 16, 546),
        ("Apple M4 Pro", 12, 273),
        ("AMD EPYC 9654 96-Core Processor", 192, 460.8),
        ("AMD EPYC 9654 96-Core Processor", 96, 460.8),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", 80, 204.8),
        ("Intel(R) Xeon(R) Platinum 8480+", 112, 307.2),
        ("13th Gen Intel(R) Core(TM) i9-13900K", 32, 89.6),
        ("AMD Ryzen 9 7950X 16-Core Processor", 32, 83.2),
    ],
)
def test_processors_by_model_and_count(name: str, processors: int, gb_per_s: float) -> None:
    device = found(name, processors=processors)
    assert device.memory_bytes_per_s == pytest.approx(gb_per_s * 1e9)


@pytest.mark.parametrize(
    ("name", "memory_mib"),
    [
        ("NVIDIA H100", 81_559),
        ("NVIDIA H100 80GB HBM2e", 81_559),  # reported by cards of two form factors
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4_864),
        ("NVIDIA A10-24Q", 23_028),
        ("NVIDIA A100X", 81_920),
        ("NVIDIA GeForce RTX 4090 Ti", 24_564),
        ("NVIDIA L40G", 23_034),
        ("Quadro RTX 6000 with Max-Q Design", 24_576),
        ("AMD Instinct MI308X", 196_592),
        ("NVIDIA H300", 300_000),
        ("", 24_564),
    ],
)
def test_an_unknown_device_has_no_peak(name: str, memory_mib: int) -> None:
    device = find_device(name, memory_bytes=memory_mib * MIB)
    assert isinstance(device, NoDatasheet)
    assert name in device.reason


def test_a_card_with_other_memory_is_another_card() -> None:
    """A 4090 rebuilt with 48 GB, and a slice of an H200 under its whole name."""
    for name, gib in (("NVIDIA GeForce RTX 4090", 47.4), ("NVIDIA H200", 16.0)):
        device = find_device(name, memory_bytes=round(gib * GIB))
        assert isinstance(device, NoDatasheet)
        assert f"{gib:.1f} GiB" in device.reason


def test_a_part_of_a_socket_has_no_peak() -> None:
    part = find_device("AMD EPYC 9654 96-Core Processor", logical_processors=2)
    assert isinstance(part, NoDatasheet)
    assert "192 logical processors, and this system shows 2" in part.reason


def test_of_an_environment() -> None:
    gpu = a_gpu()
    assert gpu.gpu is not None
    h100 = gpu.gpu.model_copy(update={"name": "NVIDIA H100 PCIe", "mig": False})
    whole = datasheet_of(gpu.model_copy(update={"gpu": h100}))
    assert isinstance(whole, Datasheet)
    assert whole.form_factor == "PCIe"
    sliced = h100.model_copy(update={"mig": True})
    instance = datasheet_of(gpu.model_copy(update={"gpu": sliced}))
    assert isinstance(instance, NoDatasheet)
    assert "MIG" in instance.reason
    assert isinstance(datasheet_of(a_cpu(l3(MIB))), NoDatasheet)
