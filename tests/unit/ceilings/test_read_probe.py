import pytest
import torch

from llmprof.ceilings.pool import Stream
from llmprof.ceilings.read_kernels import ReadKernel, read_kernels
from llmprof.ceilings.read_probe import ReadProbe, read_probes
from llmprof.ceilings.timing import Stopwatch
from llmprof.engine.linear import Linear, kernel_name

MIB = 1 << 20
OWN = ["llmprof::read 4x prefetch", "llmprof::read 4x", "llmprof::read 1x"]


class Recorder:
    """Where each read began and ended, in bytes of the pool, and how often it passed."""

    def __init__(self, pool: torch.Tensor) -> None:
        self._first = pool.data_ptr()
        self.reads: list[tuple[int, int, int]] = []

    def __call__(self, data: torch.Tensor, passes: int) -> None:
        assert data.dtype == torch.float32
        start = data.data_ptr() - self._first
        self.reads.append((start, start + data.nbytes, passes))


def test_a_large_pool_is_walked_through_in_parts() -> None:
    pool = torch.empty(160 * MIB // 2, dtype=torch.bfloat16)
    recorder = Recorder(pool)
    probe = ReadProbe(ReadKernel("recorder", recorder), Stream(pool))
    for _ in range(3):
        probe()
    assert recorder.reads == [(0, 64 * MIB, 1), (64 * MIB, 128 * MIB, 1), (0, 64 * MIB, 1)]
    assert probe.bytes_per_call == 64 * MIB


def test_a_small_pool_is_read_whole_and_often() -> None:
    pool = torch.empty(MIB // 4)
    recorder = Recorder(pool)
    probe = ReadProbe(ReadKernel("recorder", recorder), Stream(pool))
    probe()
    assert recorder.reads == [(0, MIB, 64)]
    assert probe.bytes_per_call == 64 * MIB


def test_calls_grow_with_the_rate_and_never_shrink() -> None:
    probe = ReadProbe(ReadKernel("none", lambda data, passes: None), Stream(torch.empty(256)))
    probe.expect(100e9)
    grown = probe.bytes_per_call
    assert grown == round(100e9 * 0.010 / 1024) * 1024  # whole passes over 1 KiB, 10 ms
    probe.expect(1e9)
    assert probe.bytes_per_call == grown


def test_rivals_never_read_what_the_other_has_just_read() -> None:
    pool = torch.empty(128 * MIB // 4)
    recorder, stream = Recorder(pool), Stream(pool)
    ReadProbe(ReadKernel("a", recorder), stream)()
    ReadProbe(ReadKernel("b", recorder), stream)()
    assert recorder.reads == [(0, 64 * MIB, 1), (64 * MIB, 128 * MIB, 1)]


def test_rivals_do_the_same_work() -> None:
    pool = torch.ones(64 * MIB // 4)
    probes = read_probes(read_kernels("cpu"), Stream(pool), Stopwatch("cpu"))
    assert list(probes) == [*OWN, kernel_name(1, "cpu"), "torch.dot", "torch.sum"]
    assert len({probe.bytes_per_call for probe in probes.values()}) == 1


def test_a_pool_in_cache_is_left_to_kernels_that_pass_over_it_in_one_launch() -> None:
    pool = torch.ones(2 * MIB // 4)
    probes = read_probes(read_kernels("cpu"), Stream(pool), Stopwatch("cpu"))
    assert list(probes) == OWN
    others = [ReadKernel("other", lambda data, passes: None)]
    assert list(read_probes(others, Stream(pool), Stopwatch("cpu"))) == ["other"]


def test_a_dot_product_reads_each_half_once(monkeypatch: pytest.MonkeyPatch) -> None:
    operands: list[tuple[torch.Tensor, torch.Tensor]] = []
    monkeypatch.setattr(torch, "dot", lambda a, b: operands.append((a, b)))
    (dot,) = (kernel for kernel in read_kernels("cpu") if kernel.name == "torch.dot")
    data = torch.arange(1000.0)
    dot.read(data, 2)
    assert len(operands) == 2
    assert torch.equal(torch.cat(operands[0]), data)


def test_the_kernel_of_the_engine_reads_everything_as_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products: list[Linear] = []
    monkeypatch.setattr(Linear, "__call__", lambda product, x: products.append(product))
    (engine,) = (one for one in read_kernels("cpu") if one.name == kernel_name(1, "cpu"))
    data = torch.ones(3 * 1024 + 5)
    engine.read(data, 2)
    assert [product.weight.shape for product in products] == [(3, 2048)] * 2
    assert isinstance(products[0].weight, torch.Tensor)
    assert products[0].weight.data_ptr() == data.data_ptr()
