from collections.abc import Callable

import pytest
import torch

from llmprof.ceilings.pool import Stream, random_tensor
from llmprof.ceilings.skinny import SkinnyProbe, step_bytes
from llmprof.ceilings.timing import Stopwatch
from llmprof.ceilings.weight_stream import Weight, WeightStream
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.linear import Linear
from llmprof.engine.quantization.packed_weight import PackedWeight

MIB = 1 << 20
BF16 = WeightFormat("bf16")


class RateByWidth(Stopwatch):
    """Products with so many input features run at so many bytes per second."""

    def __init__(self, rates: dict[int, float]) -> None:
        super().__init__("cpu")
        self._rates = rates
        self.last_width = 0
        self.called: Callable[[], object] = lambda: None
        """After each call."""

    def rate(self, call: Callable[[], object], work: float) -> float:
        call()
        self.called()
        return self._rates[self.last_width]


class Multiplied:
    """Remembers every weight that was multiplied by, and with which activations."""

    def __init__(self, stopwatch: RateByWidth) -> None:
        self._stopwatch = stopwatch
        self.weights: list[Weight] = []
        self.rows: set[int] = set()

    def __call__(self, weight: Weight) -> Callable[[torch.Tensor], torch.Tensor]:
        def multiply(x: torch.Tensor) -> torch.Tensor:
            assert x.shape[1] == weight.shape[1]
            self.rows.add(x.shape[0])
            self.weights.append(weight)
            self._stopwatch.last_width = weight.shape[1]
            return x

        return multiply


def test_a_step_reads_every_layer_and_the_head_once() -> None:
    """Two layers of 2 x (10 x 20) and 4 x (20 x 10) numbers of 2 bytes, and a head of 100 x 10."""
    shapes = [(10, 20), (20, 10), (100, 10)]
    working_set = 2 * (400 + 400) + 2000
    assert step_bytes(shapes, [BF16] * 3, working_set) == [800.0, 800.0, 2000.0]


def test_a_single_shape_is_read_once_and_a_small_working_set_is_one_layer() -> None:
    assert step_bytes([(10, 20)], [BF16], 10**9) == [400.0]
    assert step_bytes([(10, 20), (100, 10)], [BF16] * 2, 100) == [400.0, 2000.0]


def a_probe(
    shapes: list[tuple[int, int]],
    rates: dict[int, float],
    working_set: int,
    rows: int = 3,
    whole: bool = False,
) -> tuple[SkinnyProbe, Multiplied]:
    stopwatch = RateByWidth(rates)
    multiplied = Multiplied(stopwatch)
    stream = Stream(random_tensor((16 * MIB // 2,), "cpu", torch.bfloat16))
    probe = SkinnyProbe(
        shapes,
        rows,
        stream,
        stopwatch,
        working_set_bytes=working_set,
        make_product=multiplied,
        whole=whole,
    )
    return probe, multiplied


def test_shapes_count_by_the_time_that_a_step_spends_on_them() -> None:
    """3 layers of 2 MiB at 10 GB/s and a head of 4 MiB at 40 GB/s: 10 MiB in (6/10 + 4/40) time."""
    shapes = [(1024, 1024), (4096, 512)]
    probe, _ = a_probe(shapes, {1024: 10e9, 512: 40e9}, working_set=10 * MIB)
    assert probe.read(0.0).bytes_per_s == pytest.approx(10 / (6 / 10e9 + 4 / 40e9))


def test_weights_are_different_bytes_of_the_stream_at_the_rows_of_the_run() -> None:
    probe, multiplied = a_probe([(1024, 1024)], {1024: 1e9}, working_set=2 * MIB)
    multiplied.weights.clear()
    probe.read(0.0)
    starts = [
        weight.data_ptr() for weight in multiplied.weights if isinstance(weight, torch.Tensor)
    ]
    assert len(set(starts)) == len(starts) > 1
    assert multiplied.rows == {3}
    assert {tuple(weight.shape) for weight in multiplied.weights} == {(1024, 1024)}


def test_a_matrix_that_takes_long_is_cut_by_output_rows() -> None:
    """At 4 GB/s a call of 2 ms reads 8 MB: 3906 rows of 2 KiB."""
    probe, multiplied = a_probe([(8192, 1024)], {1024: 4e9}, working_set=16 * MIB)
    multiplied.weights.clear()
    probe.read(0.0)
    assert [tuple(weight.shape) for weight in multiplied.weights] == [(3906, 1024)]


def test_a_whole_matrix_is_not_cut_however_long_it_takes() -> None:
    probe, multiplied = a_probe([(8000, 1024)], {1024: 4e6}, working_set=16 * MIB, whole=True)
    multiplied.weights.clear()
    probe.read(0.0)
    assert [tuple(weight.shape) for weight in multiplied.weights] == [(8000, 1024)]


def test_a_matrix_larger_than_the_pool_is_cut_to_fit() -> None:
    probe, multiplied = a_probe([(65536, 1024)], {1024: 1e12}, working_set=128 * MIB)
    multiplied.weights.clear()
    probe.read(0.0)
    assert [tuple(weight.shape) for weight in multiplied.weights] == [(8192, 1024)]


def test_the_kernel_of_the_engine_gives_a_rate() -> None:
    stream = Stream(random_tensor((2 * MIB,), "cpu", torch.bfloat16))
    with torch.inference_mode():
        probe = SkinnyProbe(
            [(96, 64), (64, 96)], 1, stream, Stopwatch("cpu"), working_set_bytes=MIB
        )
        assert probe.read(0.0).bytes_per_s > 0


def test_every_pass_is_kept_and_the_figure_takes_each_shape_at_its_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2 MiB of one shape and 4 MiB of the other; 6 MiB over the sum of their times, pass by pass."""
    shapes = [(1024, 1024), (4096, 512)]
    probe, _ = a_probe(shapes, {1024: 1e9, 512: 1e9}, working_set=6 * MIB)
    listed = iter([2e9, 4e9, 1e9, 8e9])
    monkeypatch.setattr(probe, "_rate", lambda matrix: next(listed))
    rates = probe.read(60.0, most_passes=2)
    assert rates.passes_bytes_per_s == pytest.approx(
        (6 / (2 / 2e9 + 4 / 4e9), 6 / (2 / 1e9 + 4 / 8e9))
    )
    assert rates.bytes_per_s == pytest.approx(6 / (2 / 2e9 + 4 / 8e9))


def test_packed_bytes_count_and_every_shape_has_its_own_format() -> None:
    """int4 in groups of 32 with scale and minimum: 20 bytes per 32 weights; int8: 4 bytes per row."""
    int4, int8 = WeightFormat("int4", 32, symmetric=False), WeightFormat("int8")
    shapes = [(1024, 1024), (4096, 512)]
    sizes = [1024 * 1024 * 20 // 32, 4096 * (512 + 4)]
    assert step_bytes(shapes, [int4, int8], sum(sizes)) == sizes
    stopwatch = RateByWidth({1024: 10e9, 512: 40e9})
    multiplied = Multiplied(stopwatch)
    stream = Stream(random_tensor((16 * MIB // 2,), "cpu", torch.bfloat16))
    probe = SkinnyProbe(
        shapes,
        1,
        stream,
        stopwatch,
        working_set_bytes=sum(sizes),
        formats=[int4, int8],
        make_product=multiplied,
    )
    assert probe.formats == ("int4_g32_asym", "int8")
    assert probe.read(0.0).bytes_per_s == pytest.approx(
        sum(sizes) / (sizes[0] / 10e9 + sizes[1] / 40e9)
    )
    for weight in multiplied.weights:
        assert isinstance(weight, PackedWeight)
        assert weight.format == (int4 if weight.in_features == 1024 else int8)
        assert weight.nbytes == weight.format.stored_bytes(*weight.shape)
        assert torch.isfinite(weight.scales).all()


@pytest.mark.parametrize(
    "weights", [WeightFormat("int4", 32, symmetric=False), WeightFormat("int8", 32)]
)
def test_the_packed_kernel_of_the_engine_gives_a_rate(weights: WeightFormat) -> None:
    stream = Stream(random_tensor((2 * MIB,), "cpu", torch.bfloat16))
    with torch.inference_mode():
        probe = SkinnyProbe(
            [(96, 64), (64, 96)],
            2,
            stream,
            Stopwatch("cpu"),
            working_set_bytes=MIB,
            formats=[weights] * 2,
        )
        assert probe.read(0.0).bytes_per_s > 0


def test_scales_of_a_single_format_take_the_memory_of_their_codes_alone() -> None:
    """1024 x 1024 int4 weights: 512 KiB of codes and, in groups of 32, 64 KiB of scales of 2 bytes."""
    weights = WeightFormat("int4", 32)
    codes, stored = weights.code_bytes(1024, 1024), weights.stored_bytes(1024, 1024)
    assert (codes, stored - codes) == (512 << 10, 64 << 10)
    pool = random_tensor(((64 * codes) // 2,), "cpu", torch.bfloat16)
    stream = WeightStream(Stream(pool), scale_bytes=64 * (stored - codes))
    stream.take(weights, 1024, 1024)
    assert [one.nbytes for one in stream.pools()] == [64 * codes, 64 * (64 << 10)]


def test_replayed_products_are_recorded_once_and_started_natively() -> None:
    """The stopwatch calls what was recorded: the product from Python is made before that."""
    stopwatch = RateByWidth({64: 1e9})
    made: list[torch.Tensor] = []

    def linear(weight: Weight) -> Callable[[torch.Tensor], torch.Tensor]:
        product = Linear(weight)

        def multiply(x: torch.Tensor) -> torch.Tensor:
            made.append(product(x))
            stopwatch.last_width = x.shape[1]
            return made[-1]

        return multiply

    stream = Stream(random_tensor((MIB,), "cpu", torch.bfloat16))
    probe = SkinnyProbe(
        [(64, 64)],
        1,
        stream,
        stopwatch,
        working_set_bytes=2 * MIB,
        make_product=linear,
        replayed=True,
    )
    made.clear()
    calls: list[int] = []
    stopwatch.called = lambda: calls.append(len(made))
    probe.read(0.0)
    assert calls == [len(made)] != [0]
    assert all(torch.isfinite(one.float()).all() for one in made)
