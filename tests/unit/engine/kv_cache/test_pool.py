import pytest
import torch

from llmprof.engine.kv_cache import KvPool, NoCache
from llmprof.engine.step_batch import StepBatch
from tests.published import decoder
from tests.step_batches import Scattered, Shape, side_by_side

LAYERS, KV_HEADS, HEAD_DIM = 3, 2, 8
MODEL = decoder("small", LAYERS, 32, 48, 4, KV_HEADS, 50)
NUMBERS_PER_TOKEN = 2 * LAYERS * KV_HEADS * HEAD_DIM
DTYPES = ["fp32", "bf16", "int8", "fp8"]
RELATIVE_ERROR = {"fp32": 0.0, "bf16": 0.0, "int8": 0.5 / 127, "fp8": 1 / 16}
"""Half a step: of 1/127 of the largest number, or of a mantissa of three bits."""


own_or_torch = pytest.mark.parametrize("own", [True, False], ids=["own-kernel", "torch"])


def a_pool(
    num_blocks: int, block_tokens: int, kv_dtype: str = "bf16", *, own: bool | None = None
) -> KvPool:
    dtype = torch.float32 if kv_dtype == "fp32" else torch.bfloat16
    return KvPool(
        MODEL,
        num_blocks=num_blocks,
        block_tokens=block_tokens,
        kv_dtype=kv_dtype,
        dtype=dtype,
        device="cpu",
        own_kernel=own,
    )


def noise(rows: int, seed: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """[layers, rows, 2, kv_heads, head_dim]."""
    generator = torch.Generator().manual_seed(seed)
    shape = (LAYERS, rows, 2, KV_HEADS, HEAD_DIM)
    return (torch.randn(shape, generator=generator) * 3).to(dtype)


def append(pool: KvPool, step: StepBatch, new: torch.Tensor) -> None:
    """As the model passes them: keys and values are part of wider rows."""
    wide = torch.cat((torch.zeros_like(new), new), dim=2)
    pool.begin_step(step)
    for layer in range(LAYERS):
        pool.append(layer, wide[layer][:, 2:], step)


@pytest.mark.parametrize(
    ("kv_dtype", "number_bytes"),
    [("fp32", 4), ("bf16", 2), ("fp16", 2), ("int8", 1 + 4 / HEAD_DIM), ("fp8", 1)],
)
def test_sizes(kv_dtype: str, number_bytes: float) -> None:
    pool = a_pool(6, 4, kv_dtype)
    assert pool.bytes_per_token == NUMBERS_PER_TOKEN * number_bytes
    assert pool.bytes_reserved == 6 * 4 * NUMBERS_PER_TOKEN * number_bytes


@own_or_torch
@pytest.mark.parametrize("kv_dtype", DTYPES)
@pytest.mark.parametrize("block_tokens", [3, 16])
def test_what_was_appended_is_read_back_through_the_tables(
    kv_dtype: str, block_tokens: int, own: bool
) -> None:
    """Three steps of a ragged batch, then each sequence's tokens in order, whatever block they are in."""
    scattered = Scattered.of(3, 14, block_tokens, seed=block_tokens)
    pool = a_pool(scattered.num_blocks, block_tokens, kv_dtype, own=own)
    dtype = torch.float32 if kv_dtype == "fp32" else torch.bfloat16
    steps: list[list[Shape]] = [[(0, 5), (0, 1), (0, 7)], [(5, 2), (1, 4), (7, 6)]]
    written: list[list[torch.Tensor]] = [[], [], []]
    for number, shapes in enumerate([*steps, [(7, 1), (5, 1), (13, 1)]]):
        step = scattered.step(shapes)
        new = noise(step.num_rows, number, dtype)
        append(pool, step, new)
        for index, part in enumerate(torch.split(new, [shape[1] for shape in shapes], dim=1)):
            written[index].append(part)
    (run,) = step.runs
    for layer in range(LAYERS):
        keys, values = pool.read(layer, run, step)
        assert keys.shape == values.shape == (3, KV_HEADS, 14, HEAD_DIM)
        for index, parts in enumerate(written):
            whole = torch.cat(parts, dim=1)[layer]  # [tokens, 2, kv_heads, head_dim]
            for kind, found in enumerate((keys, values)):
                expected = whole[:, kind].transpose(0, 1).float()
                held = found[index, :, : expected.shape[1]].float()
                largest = expected.abs().amax(dim=-1, keepdim=True)
                scale = largest if kv_dtype == "int8" else expected.abs()
                bound = RELATIVE_ERROR[kv_dtype] * scale
                slack = 0 if kv_dtype in ("fp32", "bf16") else largest / 256  # of bf16 when read
                assert bool(((held - expected).abs() <= bound + slack).all())


def test_a_prompt_with_nothing_cached_is_read_from_its_own_rows() -> None:
    """A quantized store does not blur the keys of a prompt that is computed in one piece."""
    scattered = Scattered.of(1, 6, 4, seed=0)
    pool = a_pool(scattered.num_blocks, 4, "int8")
    step, new = scattered.step([(0, 6)]), noise(6, 1)
    append(pool, step, new)
    keys, values = pool.read(LAYERS - 1, step.runs[0], step)
    assert torch.equal(keys[0], new[-1, :, 0].transpose(0, 1))
    assert torch.equal(values[0], new[-1, :, 1].transpose(0, 1))


@own_or_torch
def test_a_static_batch_in_a_contiguous_store_is_read_without_a_copy(own: bool) -> None:
    pool = a_pool(2, 10, own=own)
    for number, (cached, new) in enumerate([(0, 4), (4, 1), (5, 3)]):
        step = side_by_side(2, cached, new, max_tokens=10)
        rows = noise(2 * new, number)
        append(pool, step, rows)
        keys, values = pool.read(1, step.runs[0], step)
        inside = range(pool.stored(1).data_ptr(), pool.stored(1).data_ptr() + pool.stored(1).nbytes)
        assert keys.data_ptr() in inside
        assert values.data_ptr() in inside
        by_sequence = rows[1].view(2, new, 2, KV_HEADS, HEAD_DIM)
        assert torch.equal(keys[:, :, cached:], by_sequence[:, :, 0].transpose(1, 2))
        assert torch.equal(values[:, :, cached:], by_sequence[:, :, 1].transpose(1, 2))


def test_gathering_from_one_large_block_copies_what_is_needed() -> None:
    scattered = Scattered.of(2, 50, 50, seed=1)
    pool = a_pool(scattered.num_blocks, 50)
    step = scattered.step([(6, 1), (3, 1)])
    pool.begin_step(step)
    keys, _ = pool.read(0, step.runs[0], step)
    assert keys.untyped_storage().nbytes() == 2 * 2 * KV_HEADS * 7 * HEAD_DIM * 2


@own_or_torch
def test_int8_scales_follow_each_vector(own: bool) -> None:
    pool = a_pool(1, 4, "int8", own=own)
    step = Scattered([[0]], 4, 1).step([(0, 2)])
    new = torch.zeros(LAYERS, 2, 2, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16)
    new[0, 1, 0, 1, 3] = -254.0
    append(pool, step, new)
    scales = pool.scales(0)
    assert scales is not None
    assert float(scales[0, 0, 1, 1]) == 2.0
    assert int(pool.stored(0)[0, 0, 1, 1, 3]) == -127
    assert int(scales.count_nonzero()) == 1


@own_or_torch
def test_fp8_saturates(own: bool) -> None:
    pool = a_pool(1, 4, "fp8", own=own)
    step = Scattered([[0]], 4, 1).step([(3, 1)])
    append(pool, step, torch.full((LAYERS, 1, 2, KV_HEADS, HEAD_DIM), -1e4).bfloat16())
    assert float(pool.stored(0)[1, 0, 0, 3, 0]) == -448.0


@pytest.mark.parametrize("kv_dtype", DTYPES)
def test_a_filled_store_holds_noise_of_its_seed(kv_dtype: str) -> None:
    held = []
    for seed in (3, 3, 4):
        pool = a_pool(4, 16, kv_dtype)
        pool.fill_random(seed)
        step = Scattered([[2, 0, 3, 1]], 16, 4).step([(63, 1)])
        pool.begin_step(step)
        keys, values = (part.float() for part in pool.read(2, step.runs[0], step))
        held.append(torch.stack((keys, values)))
    assert torch.equal(held[0], held[1])
    assert not torch.equal(held[0], held[2])
    assert float(held[0].std()) == pytest.approx(1, abs=0.1)


def test_no_cache_gives_back_the_step() -> None:
    cache = NoCache()
    step = Scattered.of(2, 5, 8, seed=0).step([(0, 3), (0, 2)])
    new = noise(5, 0)[0]
    cache.append(0, new, step)
    keys, values = cache.read(0, step.runs[1], step)
    assert torch.equal(keys[0], new[3:, 0].transpose(0, 1))
    assert torch.equal(values[0], new[3:, 1].transpose(0, 1))
    assert (cache.bytes_reserved, cache.bytes_per_token, cache.appends) == (0, 0, False)
