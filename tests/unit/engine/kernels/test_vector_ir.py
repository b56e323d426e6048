"""Building blocks of vector code, one small kernel each."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from llmprof.engine.kernels.native import KernelBody, compile_kernel
from llmprof.engine.kernels.vector_ir import F32, LANES, STORED_TYPES, VectorCode, index_constant

Numbers = npt.NDArray[np.float32]


def apply(
    emit: Callable[[VectorCode, list[Any]], list[Any]], *vectors: Numbers
) -> list[npt.NDArray[np.float32]]:
    """Vectors of float32 from vectors of float32."""
    results = 0

    def build(body: KernelBody) -> None:
        nonlocal results
        source, target = body.pointer(0, F32), body.pointer(1, F32)
        inputs = [
            body.code.load(source, index_constant(LANES * number), "fp32")
            for number in range(len(vectors))
        ]
        outputs = emit(body.code, inputs)
        results = len(outputs)
        for number, output in enumerate(outputs):
            part = VectorCode(body.builder, output.type.count)
            part.store(output, target, index_constant(LANES * number), "fp32")

    kernel = compile_kernel("apply", 2, build)
    inputs = torch.from_numpy(np.concatenate(vectors).astype(np.float32))
    out = torch.zeros(LANES * results)
    kernel.alone(inputs.data_ptr(), out.data_ptr())
    return [part.numpy() for part in out.view(results, LANES)]


def random(count: int) -> list[Numbers]:
    drawn = np.random.default_rng(count)
    return [drawn.standard_normal(LANES).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_sums_of_several_vectors_at_once(count: int) -> None:
    vectors = random(count)
    (sums,) = apply(lambda code, inputs: [code.sums(inputs)], *vectors)
    expected = [float(vector.astype(np.float64).sum()) for vector in vectors]
    np.testing.assert_allclose(sums[:count], expected, rtol=1e-5, atol=1e-6)
    padded = 1 << (count - 1).bit_length()
    assert not sums[count:padded].any()


def test_a_transposed_block() -> None:
    block = [np.arange(LANES, dtype=np.float32) + 100 * row for row in range(LANES)]
    columns = apply(lambda code, rows: code.transposed(rows), *block)
    np.testing.assert_array_equal(np.stack(columns), np.stack(block).T)


def test_a_loop_carries_values_and_may_turn_not_at_all() -> None:
    def emit(code: VectorCode, inputs: list[Any]) -> list[Any]:
        results = []
        for stop in (48, 0):
            with code.loop(index_constant(0), index_constant(stop), 16, [inputs[0]]) as loop:
                loop.carried[0] = code.fma(loop.carried[0], code.splat(2.0), code.splat(1.0))
            results.append(loop.results[0])
        return results

    (start,) = random(1)
    turned, untouched = apply(emit, start)
    np.testing.assert_allclose(turned, ((start * 2 + 1) * 2 + 1) * 2 + 1, rtol=1e-6)
    np.testing.assert_array_equal(untouched, start)


def rounded(numbers: list[float], dtype: str, lanes: int) -> torch.Tensor:
    """Stored as `dtype` by vector code of so many lanes."""
    torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]

    def build(body: KernelBody) -> None:
        code = VectorCode(body.builder, lanes)
        source, target = body.pointer(0, F32), body.pointer(1, STORED_TYPES[dtype])
        for start in range(0, LANES, lanes):
            vector = code.load(source, index_constant(start), "fp32")
            code.store(vector, target, index_constant(start), dtype)

    inputs = torch.tensor(numbers)
    out = torch.empty(LANES, dtype=torch_dtype)
    compile_kernel("rounded", 2, build).alone(inputs.data_ptr(), out.data_ptr())
    return out


@pytest.mark.parametrize("lanes", [LANES, 1])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_stores_round_to_nearest_even_as_torch_does(dtype: str, lanes: int) -> None:
    """Halfway cases up and down, the largest numbers, infinities, zeros of both signs, a NaN."""
    numbers = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, -1.00390625, 65520.0, 3.39e38]
    numbers += [math.inf, -math.inf, 0.0, -0.0, 1e-3, 0.1, -7.7, 123.456, math.nan]
    out = rounded(numbers, dtype, lanes)
    expected = torch.tensor(numbers).to(out.dtype)
    assert torch.equal(out[:-1].view(torch.int16), expected[:-1].view(torch.int16))
    assert out[-1].isnan()


def test_sum_and_largest_of_a_vector() -> None:
    def emit(code: VectorCode, inputs: list[Any]) -> list[Any]:
        return [code.broadcast(code.sum(inputs[0])), code.broadcast(code.largest(inputs[0]))]

    (numbers,) = random(1)
    total, largest = apply(emit, numbers)
    np.testing.assert_allclose(total, numbers.sum(dtype=np.float64), rtol=1e-5)
    assert set(largest) == {numbers.max()}
