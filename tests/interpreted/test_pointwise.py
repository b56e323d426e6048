"""What lies between products against torch in float64, in Triton's interpreter.

Its conversion to bf16 cuts bits off, where a GPU rounds to the nearest: twice the error.
"""

import pytest
import torch
from torch.nn import functional

from llmprof.engine.kernels.triton.gate import triton_gelu_tanh_mul, triton_silu_mul
from llmprof.engine.kernels.triton.kv_append import triton_kv_append_
from llmprof.engine.kernels.triton.norm import triton_rms_norm, triton_rms_norm_heads_
from llmprof.engine.kernels.triton.rotary import triton_rotate_
from llmprof.engine.kv_cache.formats import quantize_int8, to_fp8

ROUNDING = {torch.float32: 1e-6, torch.float16: 2**-11, torch.bfloat16: 2**-7}
dtypes = pytest.mark.parametrize("dtype", ROUNDING)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def check(out: torch.Tensor, expected: torch.Tensor) -> None:
    """Rounded once to its dtype."""
    torch.testing.assert_close(out.double(), expected, rtol=ROUNDING[out.dtype], atol=1e-6)


@dtypes
@pytest.mark.parametrize(("rows", "inner"), [(1, 7), (3, 1024), (2, 1100)])
def test_gates(rows: int, inner: int, dtype: torch.dtype) -> None:
    gate_up = 4 * random(rows, 2 * inner, dtype=dtype)
    gate, up = gate_up.double().chunk(2, dim=1)
    check(triton_silu_mul(gate_up), functional.silu(gate) * up)
    check(triton_gelu_tanh_mul(gate_up), functional.gelu(gate, approximate="tanh") * up)


def test_a_gate_far_below_zero_is_shut() -> None:
    gate_up = torch.tensor([[-200.0, 200.0, 3.0, 3.0]])
    assert triton_silu_mul(gate_up).tolist() == [[0.0, 600.0]]
    assert triton_gelu_tanh_mul(gate_up).tolist() == [[0.0, 600.0]]


def normed(x: torch.Tensor, gains: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * (gains.double() + offset)


@dtypes
@pytest.mark.parametrize("size", [5, 576])
def test_rms_norm_of_rows_at_a_stride(size: int, dtype: torch.dtype) -> None:
    x = random(3, size + 4, dtype=dtype)[:, :size]
    gains = random(size, dtype=dtype)
    out = triton_rms_norm(x, gains, 1e-2, 1.0)
    assert out.is_contiguous()
    check(out, normed(x, gains, 1e-2, 1.0))


@dtypes
def test_rms_norm_of_heads_in_place(dtype: torch.dtype) -> None:
    """The last heads of each row are values, which stay as they are."""
    heads = random(3, 5, 80, dtype=dtype)
    gains, before = random(4, 80, dtype=dtype), heads.clone()
    triton_rms_norm_heads_(heads[:, :4], gains, 1e-5)
    check(heads[:, :4], normed(before[:, :4], gains, 1e-5, 0.0))
    assert heads[:, 4].equal(before[:, 4])


@dtypes
@pytest.mark.parametrize(("num_heads", "head_dim"), [(1, 2), (9, 80), (16, 128)])
def test_rotation_in_place(num_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    heads = random(3, num_heads + 1, head_dim, dtype=dtype)
    before = heads.clone()
    cos, sin = random(3, 1, head_dim, dtype=dtype), random(3, 1, head_dim + 2, dtype=dtype)[..., 2:]
    sin = sin.contiguous()
    triton_rotate_(heads[:, :num_heads], cos, sin)
    given = before[:, :num_heads].double()
    expected = given * cos.double() + given.roll(head_dim // 2, -1) * sin.double()
    torch.testing.assert_close(
        heads[:, :num_heads].double(), expected, rtol=ROUNDING[dtype], atol=1e-6
    )
    assert heads[:, num_heads].equal(before[:, num_heads])


def test_rotation_of_the_first_channels_of_each_head() -> None:
    """The rest of a head lies between its own and those of the next one."""
    heads = random(2, 3, 80)
    before = heads.clone()
    cos, sin = random(2, 1, 32), random(2, 1, 32) + 1
    triton_rotate_(heads[..., :32], cos, sin)
    given = before[..., :32].double()
    expected = given * cos.double() + given.roll(16, -1) * sin.double()
    torch.testing.assert_close(heads[..., :32].double(), expected, rtol=1e-6, atol=1e-6)
    assert heads[..., 32:].equal(before[..., 32:])


SLOTS = torch.tensor([17, 0, 5], dtype=torch.int32)
BLOCK_TOKENS = 6


def appended(
    keys_values: torch.Tensor, stored: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """The store, its scales, and which vectors of it are new."""
    _, _, kv_heads, head_dim = keys_values.shape
    store = torch.zeros(2, 4, kv_heads, BLOCK_TOKENS, head_dim).to(stored)
    scales = torch.zeros(store.shape[:-1]) if stored is torch.int8 else None
    triton_kv_append_(keys_values, store, scales, SLOTS)
    new = torch.zeros(store.shape[:-1], dtype=torch.bool)
    for slot in SLOTS.tolist():
        new[:, slot // BLOCK_TOKENS, :, slot % BLOCK_TOKENS] = True
    return store, scales, new


def at_slots(store: torch.Tensor) -> torch.Tensor:
    """[rows, 2, kv_heads, ...] as they were given."""
    found = [store[:, slot // BLOCK_TOKENS, :, slot % BLOCK_TOKENS] for slot in SLOTS.tolist()]
    return torch.stack(found)


@dtypes
@pytest.mark.parametrize("head_dim", [64, 80])
def test_new_tokens_go_where_their_slots_say(head_dim: int, dtype: torch.dtype) -> None:
    keys_values = random(3, 9, 3, head_dim, dtype=dtype)[:, 2:4]
    store, _, new = appended(keys_values, dtype)
    assert at_slots(store).equal(keys_values)
    assert not store[~new].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_new_tokens_as_int8(dtype: torch.dtype) -> None:
    keys_values = random(3, 2, 3, 80, dtype=dtype)
    keys_values[0, 1, 2] = 0
    store, scales, new = appended(keys_values, torch.int8)
    assert scales is not None
    codes, steps = quantize_int8(keys_values)
    assert at_slots(store).equal(codes)
    assert at_slots(scales).equal(steps)
    assert not scales[~new].any()


def test_new_tokens_as_fp8() -> None:
    """Every bf16 number but NaN becomes the fp8 number that torch makes of it."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    every = torch.where(every.isnan(), 0, every)
    padded = torch.cat((every, every[: 3 * 2 * 2 * 5500 - 2**16]))
    keys_values = padded.view(3, 2, 2, 5500)
    store, _, _ = appended(keys_values, torch.float8_e4m3fn)
    found = at_slots(store.view(torch.uint8))
    assert found.equal(to_fp8(keys_values).view(torch.uint8))


def test_fp8_has_a_nan() -> None:
    keys_values = random(3, 2, 1, 8)
    keys_values[1, 0, 0, 3] = torch.nan
    store, _, _ = appended(keys_values, torch.float8_e4m3fn)
    assert at_slots(store.float()).isnan().sum() == 1
