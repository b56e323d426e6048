from collections.abc import Callable

import pytest
import torch

from llmprof.ceilings import matmul
from llmprof.ceilings import matmul_kernels as matmul_kernels_module
from llmprof.ceilings.matmul import (
    best_contenders,
    flops,
    measure_matmuls,
    race_contenders,
)
from llmprof.ceilings.matmul_kernels import (
    MatmulKernel,
    Shape,
    float32_precision,
    matmul_dtypes,
    matmul_kernels,
)
from llmprof.ceilings.timing import Stopwatch
from llmprof.store.progress import NullProgress
from tests.fp8_by_rows import fp8_by_rows

SMALL: tuple[Shape, ...] = ((32, 48, 64), (64, 64, 64), (128, 96, 64))


@pytest.fixture(autouse=True)
def few_small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_SHAPES_CPU", SMALL)


class ModelledTime(Stopwatch):
    """Time by what a kernel says of itself: its product returns the seconds it takes."""

    def __init__(self, slowed: Callable[[int], float] = lambda call: 1.0) -> None:
        """`slowed`: by which factor the call of this number is."""
        super().__init__("cpu")
        self._slowed = slowed
        self.num_calls = 0

    def time_s(self, call: Callable[[], object]) -> float:
        taken_s = call()
        assert isinstance(taken_s, float)
        self.num_calls += 1
        return taken_s * self._slowed(self.num_calls)


def modelled(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[Shape], float]) -> None:
    kernel = MatmulKernel("modelled", "bf16", lambda shape: lambda: seconds(shape))
    monkeypatch.setattr(matmul, "matmul_kernels", lambda dtype, device: (kernel,))


def test_a_multiply_add_is_two_operations() -> None:
    assert flops((2, 3, 5)) == 60


def test_the_fastest_shape_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    modelled(monkeypatch, lambda shape: flops(shape) / (2e9 if shape == SMALL[1] else 1e9))
    found = best_contenders("bf16", "cpu", ModelledTime(), call_s=1)
    assert found[0].shape == SMALL[1]
    assert len(found) == 3


def test_every_shape_is_judged_by_the_best_of_five_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are ten times slower but for the last few: what is found is what is true without load."""
    modelled(monkeypatch, lambda shape: flops(shape) / (2e9 if shape == SMALL[1] else 1e9))
    stopwatch = ModelledTime(slowed=lambda call: 10.0 if call <= 12 else 1.0)
    found = best_contenders("bf16", "cpu", stopwatch, call_s=1)
    assert stopwatch.num_calls == 3 * 5
    assert found[0].shape == SMALL[1]


def test_slow_first_calls_lose_no_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest takes 1.6 ms, but 16 ms in the first moments, when 2 ms are allowed."""
    modelled(monkeypatch, lambda shape: flops(shape) / 1e9)
    stopwatch = ModelledTime(slowed=lambda call: 10.0 if call <= 2 else 1.0)
    found = best_contenders("bf16", "cpu", stopwatch, call_s=0.002)
    assert {one.shape for one in found} == set(SMALL)


def test_a_rate_that_is_known_admits_shapes_that_a_busy_machine_would_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modelled(monkeypatch, lambda shape: flops(shape) / 1e9)
    busy = ModelledTime(slowed=lambda call: 10.0)
    few = best_contenders("bf16", "cpu", busy, call_s=0.002)
    assert SMALL[2] not in {one.shape for one in few}
    all_three = best_contenders("bf16", "cpu", busy, call_s=0.002, known_flops_per_s=1e9)
    assert {one.shape for one in all_three} == set(SMALL)


def test_the_largest_shape_stays_though_it_looked_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = ((16, 16, 16), (24, 16, 16), (32, 16, 16), (40, 16, 16), (48, 16, 16))
    monkeypatch.setattr(matmul, "_SHAPES_CPU", shapes)
    modelled(monkeypatch, lambda shape: flops(shape) * shape[0])
    found = best_contenders("bf16", "cpu", ModelledTime(), call_s=1e9)
    assert [one.shape for one in found] == [shapes[0], shapes[1], shapes[4]]


def test_a_slow_dtype_is_measured_at_its_smallest_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    modelled(monkeypatch, lambda shape: flops(shape) / 1e6)
    found = best_contenders("bf16", "cpu", ModelledTime(), call_s=0.1)
    assert [one.shape for one in found] == [SMALL[0]]


def test_shapes_together_stay_within_the_memory_that_may_be_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two kernels, 4 bytes: 63,488 of the first shape and 98,304 of the second fit, 253,952 do not."""
    modelled(monkeypatch, lambda shape: flops(shape) / 1e9)
    monkeypatch.setattr(matmul, "budget_bytes", lambda device: 63_488 + 98_304)
    found = best_contenders("bf16", "cpu", ModelledTime(), call_s=1)
    assert {one.shape for one in found} == set(SMALL[:2])


def test_short_products_are_timed_in_batches_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    modelled(monkeypatch, lambda shape: 1e-4)
    (first, *_) = best_contenders("bf16", "cpu", ModelledTime(), call_s=1)
    assert first.batch == 20
    assert first.flops_per_call == 20 * 2 * 128 * 96 * 64
    (rates,) = race_contenders([first], Stopwatch("cpu"), budget_s=0.0, at_least=2)
    assert len(rates.per_s) == 2


@pytest.mark.parametrize("dtype", matmul_dtypes("cpu"))
def test_kernels_multiply_random_operands(dtype: str) -> None:
    for kernel in matmul_kernels(dtype, "cpu"):
        product = kernel.prepare((32, 48, 64))()
        assert isinstance(product, torch.Tensor)
        assert product.shape == (32, 48)
        assert product.float().std() > 0


def test_every_dtype_of_the_cpu_gets_a_ceiling() -> None:
    ceilings, caveats = measure_matmuls("cpu", budget_s=0.2, progress=NullProgress())
    assert caveats == ()
    assert [ceiling.dtype for ceiling in ceilings] == ["fp32", "bf16", "fp16", "int8"]
    for ceiling in ceilings:
        assert (ceiling.m, ceiling.n, ceiling.k) in SMALL
        assert ceiling.flops_per_s >= ceiling.median_flops_per_s > 0


def test_a_dtype_that_torch_refuses_is_named_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*operands: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("'_int_mm' is not there\nwith a second line")

    monkeypatch.setattr(torch, "_int_mm", refuse)
    ceilings, (caveat,) = measure_matmuls("cpu", budget_s=0.1, progress=NullProgress())
    assert [ceiling.dtype for ceiling in ceilings] == ["fp32", "bf16", "fp16"]
    assert caveat.code == "dtype-unavailable"
    assert "int8" in caveat.message
    assert "'_int_mm' is not there" in caveat.message
    assert "second line" not in caveat.message


def test_float32_is_full_unless_tf32_is_meant() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with float32_precision("fp32"):
            assert torch.get_float32_matmul_precision() == "highest"
        with float32_precision("tf32"):
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@fp8_by_rows
def test_fp8_is_measured_as_the_engine_multiplies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in matmul_kernels("fp8", "cpu")] == ["torch._scaled_mm"]
    monkeypatch.setattr(matmul_kernels_module, "multiplies_fp8", lambda device: True)
    products = {one.name: one.prepare((32, 48, 64))() for one in matmul_kernels("fp8", "cpu")}
    assert set(products) == {"torch._scaled_mm", "torch._scaled_mm by rows"}
    one, by_rows = products.values()
    assert isinstance(one, torch.Tensor)
    assert isinstance(by_rows, torch.Tensor)
    assert one.shape == (32, 48)
    assert torch.equal(one, by_rows)  # scales of one, and the same numbers
