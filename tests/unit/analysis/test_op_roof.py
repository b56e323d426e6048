import pytest

from llmprof.analysis.op_roof import last_level_cache_bytes, link_time_s, op_roof
from llmprof.analysis.rates import Rates
from llmprof.schema.ceilings import BandwidthCeiling, MemoryOp
from llmprof.schema.cost import ByteTraffic, OpCost, OpGroup
from llmprof.schema.environment import CacheLevel, GpuInfo
from llmprof.schema.ledger import Part, Side
from tests.records import an_environment

RATES = Rates(10e9, 1e12, "bf16", {})
CACHE_BYTES = 1_000_000


def _op(flops: float = 0.0, calls: int = 10, **traffic: float) -> OpCost:
    return OpCost(
        name="op",
        group=OpGroup.OTHER,
        calls=calls,
        compute_dtype="bf16",
        flops=flops,
        flops_dense=flops,
        flops_causal=flops,
        traffic=ByteTraffic(**traffic),
    )


def test_the_longer_link_decides_the_side() -> None:
    memory = op_roof(_op(flops=1e9, weights=40e6), RATES, CACHE_BYTES)  # 4 ms against 1 ms
    compute = op_roof(_op(flops=9e9, weights=40e6), RATES, CACHE_BYTES)  # 4 ms against 9 ms
    assert (memory.side, memory.link_s) == (Side.MEMORY, 0.004)
    assert (compute.side, compute.link_s) == (Side.COMPUTE, 0.009)


def test_memory_time_is_split_by_what_is_moved() -> None:
    op = _op(weights=20e6, kv_read=8e6, kv_write=2e6, scores=4e6, logits=4e6, copies=4e6)
    assert op_roof(op, RATES, CACHE_BYTES).link_by_part() == {
        Part.MEMORY_WEIGHTS: pytest.approx(0.002),
        Part.MEMORY_KV: pytest.approx(0.001),
        Part.MEMORY_OTHER: pytest.approx(0.0012),
    }


def test_a_compute_side_op_has_no_memory_part() -> None:
    roof = op_roof(_op(flops=9e9, weights=40e6), RATES, CACHE_BYTES)
    assert roof.link_by_part() == {Part.COMPUTE: pytest.approx(0.009)}


@pytest.mark.parametrize("kind", ["activations", "scores", "logits", "copies"])
def test_what_is_handed_on_counts_where_one_call_spills_the_cache(kind: str) -> None:
    """Scores of standard attention are no more in memory than activations of the same size."""
    resident = op_roof(_op(calls=10, **{kind: 9e6}), RATES, CACHE_BYTES)  # 0.9 MB each
    spilled = op_roof(_op(calls=10, **{kind: 11e6}), RATES, CACHE_BYTES)
    assert (resident.memory_s, resident.roof_bytes, resident.cached_bytes) == (0, 0, 9e6)
    assert resident.link_by_part() == {}
    assert spilled.memory_s == pytest.approx(0.0011)
    assert (spilled.roof_bytes, spilled.cached_bytes) == (11e6, 0)


def test_what_is_handed_on_is_one_working_set() -> None:
    """0.6 MB of scores and 0.6 MB of activations in a call do not fit together."""
    both = op_roof(_op(calls=1, scores=0.6e6, activations=0.6e6), RATES, CACHE_BYTES)
    assert both.roof_bytes == 1.2e6


def test_where_no_cache_is_known_nothing_handed_on_is_said_to_reach_memory() -> None:
    roof = op_roof(_op(calls=1, weights=1e6, scores=5e9), RATES, None)
    assert (roof.roof_bytes, roof.cached_bytes) == (1e6, 5e9)


def test_ops_run_one_after_the_other() -> None:
    """The roof of a sum is not the sum of the roofs: 4 + 9 ms, not max(8, 10)."""
    ops = (_op(flops=1e9, weights=40e6), _op(flops=9e9, weights=40e6))
    assert link_time_s(ops, RATES, CACHE_BYTES) == pytest.approx(0.013)


def test_last_level_cache_is_what_the_threads_can_fill() -> None:
    environment = an_environment()  # 2 threads, 32 MiB shared by 2
    assert last_level_cache_bytes(environment, ()) == 32 * 2**20
    split = CacheLevel(level=3, size_bytes=16 * 2**20, shared_by=1)
    cpu = environment.cpu.model_copy(update={"caches": (split,)})
    assert last_level_cache_bytes(environment.model_copy(update={"cpu": cpu}), ()) == 32 * 2**20
    unknown = environment.cpu.model_copy(update={"caches": ()})
    assert last_level_cache_bytes(environment.model_copy(update={"cpu": unknown}), ()) is None


def _read(buffer_mib: int, level: str, op: MemoryOp = MemoryOp.READ) -> BandwidthCeiling:
    return BandwidthCeiling(
        op=op,
        level=level,
        buffer_bytes=buffer_mib * 2**20,
        bytes_per_s=10e9,
        median_bytes_per_s=10e9,
        spread=0.0,
        kernel="sum",
    )


def test_a_cache_that_a_guest_is_told_of_is_bounded_by_what_it_reads_from_memory() -> None:
    """480 MiB are reported to two cores, and 240 MiB are read no faster than memory."""
    whole = CacheLevel(level=3, size_bytes=480 * 2**20, shared_by=2)
    environment = an_environment()
    cpu = environment.cpu.model_copy(update={"caches": (whole,)})
    environment = environment.model_copy(update={"cpu": cpu})
    reads = (_read(16, "LLC"), _read(240, "DRAM"), _read(1920, "DRAM"))
    assert last_level_cache_bytes(environment, reads) == 240 * 2**20
    assert last_level_cache_bytes(environment, (reads[0], reads[2])) == 480 * 2**20
    assert last_level_cache_bytes(environment, (_read(4, "DRAM", MemoryOp.COPY),)) == 480 * 2**20


def test_a_gpu_has_its_own_cache() -> None:
    gpu = GpuInfo(
        name="GPU",
        uuid="GPU-0",
        memory_bytes=80 * 2**30,
        compute_capability="9.0",
        multiprocessors=132,
        l2_bytes=50 * 2**20,
        driver_version=None,
        power_limit_w=None,
        max_sm_clock_hz=None,
        mig=None,
    )
    environment = an_environment().model_copy(update={"gpu": gpu})
    assert last_level_cache_bytes(environment, ()) == 50 * 2**20
    reads = (_read(40, "L2 or HBM"), _read(45, "HBM"), _read(4096, "HBM"))
    assert last_level_cache_bytes(environment, reads) == 45 * 2**20
