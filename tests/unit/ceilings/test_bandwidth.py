import pytest
import torch

from llmprof.ceilings import pool
from llmprof.ceilings.bandwidth import measure_bandwidth
from llmprof.instruments.host_memory import HostMemory
from llmprof.schema.ceilings import MemoryOp
from tests.unit.ceilings.factories import MIB, a_cpu, l2, l3


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch, short_reads: None) -> None:
    monkeypatch.setattr(pool, "host_memory", lambda: HostMemory(1 << 34, 256 * MIB))


def test_every_level_is_read_and_memory_is_written_too() -> None:
    """64 MiB of memory may be taken: above 4 x 8 MiB, so the largest buffer counts as DRAM."""
    machine = a_cpu(l2(MIB), l3(8 * MIB), threads=1)
    with torch.inference_mode():
        ceilings, _caveats = measure_bandwidth(machine, "cpu", budget_s=0.05)
    reads = [ceiling for ceiling in ceilings if ceiling.op is MemoryOp.READ]
    assert sorted(read.buffer_bytes for read in reads) == [MIB // 2, 4 * MIB, 64 * MIB]
    largest = [c for c in ceilings if c.buffer_bytes == 64 * MIB]
    assert [c.op for c in largest] == list(MemoryOp)
    assert {c.level for c in largest} == {"DRAM"}
    for ceiling in ceilings:
        assert ceiling.bytes_per_s >= ceiling.median_bytes_per_s > 0
        assert ceiling.kernel
    order = ["L2", "LLC", "LLC or DRAM", "DRAM"]
    distances = [order.index(ceiling.level) for ceiling in ceilings]
    assert distances == sorted(distances)
