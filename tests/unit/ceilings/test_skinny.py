from collections.abc import Callable

import pytest
import torch

from llmprof.ceilings.pool import Stream, random_tensor
from llmprof.ceilings.skinny import SkinnyProbe, step_bytes
from llmprof.ceilings.timing import Stopwatch

MIB = 1 << 20


class RateByWidth(Stopwatch):
    """Products with so many input features run at so many bytes per second."""

    def __init__(self, rates: dict[int, float]) -> None:
        super().__init__("cpu")
        self._rates = rates
        self.last_width = 0

    def rate(self, call: Callable[[], object], work: float) -> float:
        call()
        return self._rates[self.last_width]


class Multiplied:
    """Remembers every weight that was multiplied by, and with which activations."""

    def __init__(self, stopwatch: RateByWidth) -> None:
        self._stopwatch = stopwatch
        self.weights: list[torch.Tensor] = []
        self.rows: set[int] = set()

    def __call__(self, weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
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
    assert step_bytes(shapes, 2, working_set) == [800.0, 800.0, 2000.0]


def test_a_single_shape_is_read_once_and_a_small_working_set_is_one_layer() -> None:
    assert step_bytes([(10, 20)], 2, 10**9) == [400.0]
    assert step_bytes([(10, 20), (100, 10)], 2, 100) == [400.0, 2000.0]


def a_probe(
    shapes: list[tuple[int, int]], rates: dict[int, float], working_set: int, rows: int = 3
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
    )
    return probe, multiplied


def test_shapes_count_by_the_time_that_a_step_spends_on_them() -> None:
    """3 layers of 2 MiB at 10 GB/s and a head of 4 MiB at 40 GB/s: 10 MiB in (6/10 + 4/40) time."""
    shapes = [(1024, 1024), (4096, 512)]
    probe, _ = a_probe(shapes, {1024: 10e9, 512: 40e9}, working_set=10 * MIB)
    assert probe.read(0.0) == pytest.approx(10 / (6 / 10e9 + 4 / 40e9))


def test_weights_are_different_bytes_of_the_stream_at_the_rows_of_the_run() -> None:
    probe, multiplied = a_probe([(1024, 1024)], {1024: 1e9}, working_set=2 * MIB)
    multiplied.weights.clear()
    probe.read(0.0)
    starts = [weight.data_ptr() for weight in multiplied.weights]
    assert len(set(starts)) == len(starts) > 1
    assert multiplied.rows == {3}
    assert {tuple(weight.shape) for weight in multiplied.weights} == {(1024, 1024)}


def test_a_matrix_that_takes_long_is_cut_by_output_rows() -> None:
    """At 4 GB/s a call of 2 ms reads 8 MB: 3906 rows of 2 KiB."""
    probe, multiplied = a_probe([(8192, 1024)], {1024: 4e9}, working_set=16 * MIB)
    multiplied.weights.clear()
    probe.read(0.0)
    assert [tuple(weight.shape) for weight in multiplied.weights] == [(3906, 1024)]


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
        assert probe.read(0.0) > 0
