"""Our kernels on a real GPU against torch, and an engine on it against the CPU's tokens."""

from pathlib import Path

import pytest
import torch

from llmprof.architectures.source import resolve_model
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.activation import gated
from llmprof.engine.engine import Engine
from llmprof.engine.feed_forward import DenseFeedForward
from llmprof.engine.kv_cache.formats import quantize_int8, to_fp8
from llmprof.engine.linear import Linear
from llmprof.engine.norm import RmsNorm
from llmprof.engine.normed_product import normed_product
from llmprof.engine.probe import NullProbe
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.residual import ResidualStream
from llmprof.engine.sampling import GreedySampler
from llmprof.schema.cost import OpGroup
from llmprof.schema.settings import RunConfig
from tests.packed_weights import FORMATS, random_packed
from tests.tiny_decoders import LLAMA, PROMPT, load_engine, settings, write_decoder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
DEVICE = "cuda:0"
HEADS, KV_HEADS = 8, 2


def moved(packed: PackedWeight) -> PackedWeight:
    minimums = None if packed.minimums is None else packed.minimums.to(DEVICE)
    return PackedWeight(
        packed.format,
        packed.dtype,
        packed.in_features,
        packed.codes.to(DEVICE),
        packed.scales.to(DEVICE),
        minimums,
    )


@pytest.mark.parametrize("rows", [1, 2, 7, 32, 100])
@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_products_with_packed_weights(fmt: WeightFormat, rows: int) -> None:
    """Few rows in our kernel, a hundred through unpacked weights."""
    packed, weights = random_packed(fmt, 1000, 1120, torch.bfloat16)
    x = torch.randn(rows, 1120).bfloat16()
    expected = x.double() @ torch.from_numpy(weights).T
    y = Linear(moved(packed))(x.to(DEVICE)).cpu().double()
    torch.testing.assert_close(y, expected, rtol=0, atol=2**-7 * float(expected.abs().max()))


@pytest.mark.parametrize("bias", [True, False])
def test_products_in_fp8_arithmetic(bias: bool) -> None:
    """Rows rounded to fp8, sums in float32: against the same rows on the CPU, and against exact ones."""
    from llmprof.engine.kernels.fp8_products import multiplies_fp8

    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no fp8 arithmetic")
    assert multiplies_fp8(torch.device(DEVICE)), "this build of torch refuses row-wise scales"
    packed, weights = random_packed(WeightFormat("fp8"), 1008, 1120, torch.bfloat16)
    x, added = torch.randn(100, 1120).bfloat16(), torch.randn(1008).bfloat16()
    scale = x.double().abs().amax(1, keepdim=True) / 448
    rounded = (x.double() / scale).float().to(torch.float8_e4m3fn).double() * scale
    product = Linear(moved(packed), added.to(DEVICE) if bias else None)
    assert product.fp8_arithmetic
    y = product(x.to(DEVICE)).cpu().double()
    expected = rounded @ torch.from_numpy(weights).T + (added.double() if bias else 0)
    torch.testing.assert_close(y, expected, rtol=0, atol=2**-6 * float(expected.abs().max()))


@pytest.mark.parametrize("stored", ["same", "int8", "fp8"])
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
def test_decoding_tokens(stored: str, head_dim: int) -> None:
    from llmprof.engine.kernels.attention_decode import decode_attention
    from llmprof.engine.kernels.triton.attention_decode import triton_decode_attention

    lengths = torch.tensor([1, 16, 17, 1000], dtype=torch.int32)
    numbers = torch.randn(2, 260, KV_HEADS, 16, head_dim)
    store, scales = numbers.bfloat16(), None
    if stored == "int8":
        store, scales = quantize_int8(numbers)
    elif stored == "fp8":
        store = to_fp8(numbers)
    tables = torch.randperm(260)[: 4 * 63].view(4, 63).int()
    query = torch.randn(4, HEADS, head_dim).bfloat16()
    for window, cap in ((None, None), (100, 5.0)):
        expected = decode_attention(query, store, scales, tables, lengths, 1000, window, cap)
        out = triton_decode_attention(
            query.to(DEVICE),
            store.to(DEVICE),
            None if scales is None else scales.to(DEVICE),
            tables.to(DEVICE),
            lengths.to(DEVICE),
            1000,
            window,
            cap,
        )
        torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=2e-2)


@pytest.mark.parametrize("head_dim", [64, 256])
def test_new_tokens_after_cached_ones(head_dim: int) -> None:
    from llmprof.engine.kernels.attention_decode import decode_attention
    from llmprof.engine.kernels.triton.attention_chunk import triton_chunk_attention

    new, length = 70, 200
    store = torch.randn(2, 20, KV_HEADS, 16, head_dim).bfloat16()
    tables = torch.randperm(20)[:13].view(1, 13).int()
    query = torch.randn(new, HEADS, head_dim).bfloat16()
    seen = torch.arange(length - new + 1, length + 1, dtype=torch.int32)
    expected = decode_attention(query, store, None, tables.expand(new, -1), seen, length, 90)
    out = triton_chunk_attention(
        query.to(DEVICE),
        store.to(DEVICE),
        None,
        tables.to(DEVICE),
        torch.tensor([length], dtype=torch.int32, device=DEVICE),
        90,
    )
    torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=2e-2)


@pytest.mark.parametrize("stored", ["same", "int8", "fp8"])
def test_appending_to_a_cache(stored: str) -> None:
    from llmprof.engine.kernels.kv_append import kv_append_
    from llmprof.engine.kernels.triton.kv_append import triton_kv_append_

    keys_values = torch.randn(5, 2, KV_HEADS, 80).bfloat16()
    dtype = {"same": torch.bfloat16, "int8": torch.int8, "fp8": torch.float8_e4m3fn}[stored]
    store = torch.zeros(2, 4, KV_HEADS, 16, 80).to(dtype)
    scales = torch.zeros(store.shape[:-1]) if stored == "int8" else None
    slots = torch.tensor([63, 0, 17, 16, 2], dtype=torch.int32)
    on_gpu = None if scales is None else scales.to(DEVICE)
    out = store.to(DEVICE)
    triton_kv_append_(keys_values.to(DEVICE), out, on_gpu, slots.to(DEVICE))
    kv_append_(keys_values, store, scales, slots)
    assert out.cpu().float().equal(store.float())
    if scales is not None and on_gpu is not None:
        assert on_gpu.cpu().equal(scales)


def test_what_lies_between_products() -> None:
    """As the kernels for CPUs, in float32 and rounded once."""
    from llmprof.engine.activation import gated_by_gelu
    from llmprof.engine.norm import HeadNorm
    from llmprof.engine.rope import rotate_

    gate_up, heads = torch.randn(7, 2 * 1100).bfloat16(), torch.randn(7, 6, 80).bfloat16()
    gains, angles = torch.randn(80).bfloat16(), torch.randn(7, 1, 80).bfloat16()
    found = []
    for device in ("cpu", DEVICE):
        on_device = heads.clone().to(device)
        weights = gains.to(device)
        HeadNorm(weights, weights, 4, 1, 1e-5).apply_(on_device[:, :5])
        rotate_(on_device[:, :5], angles.to(device), angles.to(device))
        normed = RmsNorm(weights, 1e-5, 1.0)(on_device.flatten(0, 1))
        given = gate_up.to(device)
        found.append([on_device, normed, gated(given), gated_by_gelu(given)])
    for expected, out in zip(*found, strict=True):
        torch.testing.assert_close(out.cpu(), expected, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("packed_weight", [True, False])
def test_products_added_to_the_residual_stream(rows: int, packed_weight: bool, fused: bool) -> None:
    packed, weights = random_packed(FORMATS[-1], 1000, 1152, torch.bfloat16)
    weight = moved(packed) if packed_weight else torch.from_numpy(weights).bfloat16().to(DEVICE)
    x, y = torch.randn(rows, 1000).bfloat16(), torch.randn(rows, 1152).bfloat16()
    expected = x.double() + y.double() @ torch.from_numpy(weights).T
    total = x.to(DEVICE)
    ResidualStream(total, fused).add_product(Linear(weight), y.to(DEVICE))
    largest = float(expected.abs().max())
    torch.testing.assert_close(total.cpu().double(), expected, rtol=0, atol=2**-7 * largest)


@pytest.mark.parametrize("rows", [1, 2, 16])
@pytest.mark.parametrize("fmt", [None, *FORMATS], ids=str)
def test_one_kernel_gives_what_several_give(fmt: WeightFormat | None, rows: int) -> None:
    """Two layers of products in sizes of which some are shared by programs, twice: counters reset."""
    inner = 1536
    packed, weights = random_packed(fmt or FORMATS[0], 2 * inner, 1024, torch.bfloat16)
    gate_up = Linear(
        torch.from_numpy(weights).bfloat16().to(DEVICE) if fmt is None else moved(packed)
    )
    packed, weights = random_packed(fmt or FORMATS[0], 1024, inner, torch.bfloat16, seed=1)
    down = Linear(torch.from_numpy(weights).bfloat16().to(DEVICE) if fmt is None else moved(packed))
    norm = RmsNorm(torch.rand(1024, device=DEVICE).bfloat16(), 1e-5)
    layer = DenseFeedForward(gate_up, down, gated, "silu")
    x = torch.randn(rows, 1024, device=DEVICE).bfloat16()
    found = []
    for fused in (False, True, True):
        stream = ResidualStream(x.clone(), fused)
        for _ in range(2):
            layer.add_to(stream, norm, NullProbe())
        found.append(normed_product(stream, norm, gate_up, OpGroup.LM_HEAD, NullProbe()).float())
    apart, once, again = found
    assert once.equal(again)
    largest = float(apart.abs().max())
    torch.testing.assert_close(once, apart, rtol=0, atol=2**-6 * largest)


@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"kv_cache": {"layout": "paged"}},
        {"kv_cache": {"layout": "paged", "dtype": "int8"}},
        {"weights": {"quantization": "int8"}},
        {"weights": {"quantization": "int4"}},
        {"weights": {"quantization": "fp8"}},
        {"execution": {"mode": "cuda_graph"}},
    ],
    ids=str,
)
def test_the_tokens_of_the_cpu(groups: dict[str, dict[str, object]], tmp_path: Path) -> None:
    """In fp32, where rounding changes no token."""
    path = write_decoder(tmp_path, LLAMA)
    plain = {key: value for key, value in groups.items() if key != "execution"}
    expected = load_engine(settings(path, **plain)).generate(PROMPT, GreedySampler(), max_tokens=8)
    engine = on_gpu(settings(path, **groups))
    assert engine.generate(PROMPT, GreedySampler(), max_tokens=8) == expected


def on_gpu(config: RunConfig) -> Engine:
    source = resolve_model(config.model, weights=config.weights.source)
    return Engine.load(source, config, device=DEVICE, threads=1, host_available_bytes=2**33)
