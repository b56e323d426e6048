import pytest
import torch

from llmprof.engine.linear import Linear, kernel_name


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_times_the_transposed_weight(rows: int, with_bias: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (
        torch.randint(-4, 5, shape, generator=generator).to(dtype)
        for shape in ((rows, 24), (10, 24), (10,))
    )
    y = Linear(weight, bias if with_bias else None)(x)
    # small integers: every sum is exact in every dtype
    expected = torch.einsum("ri,oi->ro", x.double(), weight.double())
    expected += bias.double() if with_bias else 0
    assert y.dtype is dtype
    torch.testing.assert_close(y.double(), expected, atol=0, rtol=2**-8)


def test_shape_is_out_by_in() -> None:
    assert Linear(torch.empty(10, 24)).shape == (10, 24)


def test_few_rows_have_a_kernel_of_their_own_on_a_cpu() -> None:
    assert kernel_name(1, "cpu") == "llmprof::matvec"
    assert kernel_name(512, "cpu") == "torch.nn.functional.linear"
    assert kernel_name(1, "cuda:0") == "torch.nn.functional.linear"
