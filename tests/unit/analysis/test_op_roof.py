import pytest

from llmprof.analysis.op_roof import last_level_cache_bytes, link_time_s, op_roof
from llmprof.analysis.rates import Rates
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
    op = _op(weights=10e6, kv_read=4e6, kv_write=1e6, scores=2e6, logits=2e6, copies=1e6)
    assert op_roof(op, RATES, CACHE_BYTES).link_by_part() == {
        Part.MEMORY_WEIGHTS: pytest.approx(0.001),
        Part.MEMORY_KV: pytest.approx(0.0005),
        Part.MEMORY_OTHER: pytest.approx(0.0005),
    }


def test_a_compute_side_op_has_no_memory_part() -> None:
    roof = op_roof(_op(flops=9e9, weights=40e6), RATES, CACHE_BYTES)
    assert roof.link_by_part() == {Part.COMPUTE: pytest.approx(0.009)}


def test_activations_count_where_one_call_spills_the_cache() -> None:
    resident = op_roof(_op(calls=10, activations=9e6), RATES, CACHE_BYTES)  # 0.9 MB each
    spilled = op_roof(_op(calls=10, activations=11e6), RATES, CACHE_BYTES)
    assert resident.memory_s == 0
    assert resident.link_by_part() == {}
    assert spilled.memory_s == pytest.approx(0.0011)


def test_ops_run_one_after_the_other() -> None:
    """The roof of a sum is not the sum of the roofs: 4 + 9 ms, not max(8, 10)."""
    ops = (_op(flops=1e9, weights=40e6), _op(flops=9e9, weights=40e6))
    assert link_time_s(ops, RATES, CACHE_BYTES) == pytest.approx(0.013)


def test_last_level_cache_is_what_the_threads_can_fill() -> None:
    environment = an_environment()  # 2 threads, 32 MiB shared by 2
    assert last_level_cache_bytes(environment) == 32 * 2**20
    split = CacheLevel(level=3, size_bytes=16 * 2**20, shared_by=1)
    cpu = environment.cpu.model_copy(update={"caches": (split,)})
    assert last_level_cache_bytes(environment.model_copy(update={"cpu": cpu})) == 32 * 2**20
    unknown = environment.cpu.model_copy(update={"caches": ()})
    assert last_level_cache_bytes(environment.model_copy(update={"cpu": unknown})) == 0


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
    assert last_level_cache_bytes(environment) == 50 * 2**20
