"""Our kernels on a real GPU against torch, and an engine on it against the CPU's tokens."""

from pathlib import Path

import pytest
import torch

from llmprof.architectures.source import resolve_model
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.engine import Engine
from llmprof.engine.kv_cache.formats import quantize_int8, to_fp8
from llmprof.engine.linear import Linear
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.sampling import GreedySampler
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


@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"kv_cache": {"layout": "paged"}},
        {"kv_cache": {"layout": "paged", "dtype": "int8"}},
        {"weights": {"quantization": "int8"}},
        {"weights": {"quantization": "int4"}},
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
