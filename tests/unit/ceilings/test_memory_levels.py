import pytest

from llmprof.ceilings.memory_levels import (
    CacheSizes,
    label_sizes,
    level_of,
    nominal_level,
    probe_sizes,
)
from llmprof.schema.ceilings import BandwidthCeiling, MemoryOp
from tests.unit.ceilings.factories import GIB, MIB, a_cpu, a_gpu, l2, l3

TWO_CORES = CacheSizes(l2_bytes=2 * MIB, llc_bytes=32 * MIB)
SHARED_SOCKET = CacheSizes(l2_bytes=4 * MIB, llc_bytes=480 * MIB)
"""Two cores of a virtual machine that reports the last-level cache of a whole socket."""


def test_caches_count_once_per_instance_that_the_threads_reach() -> None:
    smt = a_cpu(l2(2 * MIB, shared_by=2), l3(32 * MIB, shared_by=16), threads=8, usable_cores=32)
    assert CacheSizes.of(smt) == CacheSizes(l2_bytes=4 * 2 * MIB, llc_bytes=2 * 32 * MIB)


def test_a_cpu_without_a_third_level_and_a_gpu_have_l2_alone() -> None:
    assert CacheSizes.of(a_cpu(l2(1 * MIB))) == CacheSizes(l2_bytes=2 * MIB, llc_bytes=0)
    assert CacheSizes.of(a_gpu(50 * MIB)) == CacheSizes(l2_bytes=50 * MIB, llc_bytes=0)


def test_unknown_caches_are_zero() -> None:
    assert CacheSizes.of(a_cpu()) == CacheSizes(0, 0)
    assert CacheSizes.of(a_gpu(None)) == CacheSizes(0, 0)


@pytest.mark.parametrize(
    ("size", "caches", "far", "level"),
    [
        (1 * MIB, CacheSizes(72 * MIB, 0), "HBM", "L2"),  # a probe that fits in the cache
        (287 * MIB, CacheSizes(72 * MIB, 0), "HBM", "L2"),
        (288 * MIB, CacheSizes(72 * MIB, 0), "HBM", "HBM"),
        (269 * 10**6, CacheSizes(50 * MIB, 0), "HBM", "HBM"),  # a 135M model in bf16
        (2 * MIB, TWO_CORES, "DRAM", "L2"),
        (3 * MIB, TWO_CORES, "DRAM", "LLC"),
        (127 * MIB, TWO_CORES, "DRAM", "LLC"),
        (128 * MIB, TWO_CORES, "DRAM", "DRAM"),
        (1 * MIB, CacheSizes(0, 0), "DRAM", "DRAM"),
    ],
)
def test_below_four_last_level_caches_it_is_cache(
    size: int, caches: CacheSizes, far: str, level: str
) -> None:
    assert nominal_level(size, caches, far) == level


def test_sizes_to_read_on_a_usual_machine() -> None:
    sizes = probe_sizes(TWO_CORES, 4 * GIB, gpu=False)
    assert sizes == (1 * MIB, 8 * MIB, 16 * MIB, 512 * MIB)


def test_a_large_cache_asks_for_a_larger_buffer() -> None:
    sizes = probe_sizes(SHARED_SOCKET, 4 * GIB, gpu=False)
    assert sizes == (2 * MIB, 16 * MIB, 240 * MIB, 1920 * MIB)


def test_no_size_exceeds_the_memory() -> None:
    assert probe_sizes(SHARED_SOCKET, 1 * GIB, gpu=False)[-1] == 1 * GIB
    assert probe_sizes(SHARED_SOCKET, 10 * MIB, gpu=False) == (2 * MIB, 10 * MIB)


def test_a_gpu_reads_in_its_l2_and_far_beyond() -> None:
    sizes = probe_sizes(CacheSizes(50 * MIB, 0), 20 * GIB, gpu=True)
    assert sizes == (25 * MIB, 1 * GIB)


def test_a_usual_machine_is_labelled_by_size() -> None:
    rates = {1 * MIB: 370e9, 8 * MIB: 220e9, 16 * MIB: 214e9, 512 * MIB: 52e9}
    labels = label_sizes(rates, TWO_CORES, "DRAM")
    assert list(labels.levels.values()) == ["L2", "LLC", "LLC", "DRAM"]
    assert labels.caveats == ()


@pytest.mark.parametrize("rate", [31e9, 34e9, 36e9, 38.7e9])
def test_a_cache_that_is_hardly_faster_than_memory_may_be_either(rate: float) -> None:
    """Up to 25 % above 31 GB/s; noise of 15 % once moved this buffer to DRAM and back."""
    rates = {2 * MIB: 270e9, 16 * MIB: 53e9, 240 * MIB: rate, 1920 * MIB: 31e9}
    labels = label_sizes(rates, SHARED_SOCKET, "DRAM")
    assert list(labels.levels.values()) == ["L2", "LLC", "LLC or DRAM", "DRAM"]
    (caveat,) = labels.caveats
    assert caveat.code == "level-in-doubt"
    assert f"240 MiB are read at {rate / 1e9:.1f} GB/s and 1.88 GiB at 31.0 GB/s" in caveat.message
    assert "480 MiB" in caveat.message


@pytest.mark.parametrize("rate", [39e9, 80e9])
def test_a_cache_that_is_ours_stays_cache_however_large(rate: float) -> None:
    rates = {2 * MIB: 270e9, 16 * MIB: 90e9, 240 * MIB: rate, 1920 * MIB: 31e9}
    labels = label_sizes(rates, SHARED_SOCKET, "DRAM")
    assert list(labels.levels.values()) == ["L2", "LLC", "LLC", "DRAM"]
    assert labels.caveats == ()


def test_disturbed_rates_tell_nothing_of_levels() -> None:
    rates = {2 * MIB: 270e9, 16 * MIB: 90e9, 240 * MIB: 80e9, 1920 * MIB: 31e9}
    labels = label_sizes(rates, SHARED_SOCKET, "DRAM", contended=True)
    assert list(labels.levels.values()) == ["L2", "LLC or DRAM", "LLC or DRAM", "DRAM"]
    (caveat,) = labels.caveats
    assert caveat.code == "level-in-doubt"
    assert "other processes" in caveat.message


def test_without_a_buffer_beyond_four_caches_no_dram_figure_is_claimed() -> None:
    rates = {2 * MIB: 270e9, 16 * MIB: 90e9, 50 * MIB: 70e9, 100 * MIB: 40e9}
    labels = label_sizes(rates, CacheSizes(l2_bytes=4 * MIB, llc_bytes=64 * MIB), "DRAM")
    assert list(labels.levels.values()) == ["L2", "LLC", "LLC", "LLC or DRAM"]
    missing, doubt = labels.caveats
    assert (missing.code, doubt.code) == ("dram-not-reached", "level-in-doubt")
    assert "100 MiB" in missing.message
    assert "64.0 MiB" in missing.message


def test_on_a_gpu_it_is_l2_that_is_in_doubt() -> None:
    labels = label_sizes({100 * MIB: 3e12, 1 * GIB: 3e12}, CacheSizes(50 * MIB, 0), "HBM")
    assert list(labels.levels.values()) == ["L2 or HBM", "HBM"]


def test_unknown_caches_are_said() -> None:
    labels = label_sizes({512 * MIB: 50e9}, CacheSizes(0, 0), "DRAM")
    assert labels.levels == {512 * MIB: "DRAM"}
    assert [caveat.code for caveat in labels.caveats] == ["caches-unknown"]


def a_read(level: str, buffer_bytes: int) -> BandwidthCeiling:
    return BandwidthCeiling(
        op=MemoryOp.READ,
        level=level,
        buffer_bytes=buffer_bytes,
        bytes_per_s=1e9,
        median_bytes_per_s=1e9,
        spread=0.0,
        kernel="k",
    )


def test_a_buffer_as_large_as_one_measured_to_be_dram_is_dram() -> None:
    machine = a_cpu(l2(2 * MIB), l3(480 * MIB))
    measured = [a_read("LLC", 16 * MIB), a_read("DRAM", 1920 * MIB), a_read("DRAM", 240 * MIB)]
    assert level_of(269_000_000, machine) == "LLC"
    assert level_of(269_000_000, machine, measured) == "DRAM"
    assert level_of(100 * MIB, machine, measured) == "LLC"


def test_a_buffer_as_large_as_one_in_doubt_is_in_doubt() -> None:
    machine = a_cpu(l2(2 * MIB), l3(480 * MIB))
    measured = [
        a_read("LLC", 16 * MIB),
        a_read("DRAM", 1920 * MIB),
        a_read("LLC or DRAM", 240 * MIB),
    ]
    assert level_of(269_000_000, machine, measured) == "LLC or DRAM"
    assert level_of(1920 * MIB, machine, measured) == "DRAM"
    assert level_of(100 * MIB, machine, measured) == "LLC"
