import pytest
import torch

from llmprof.engine.kv_cache import ContiguousCache, NoCache, make_cache
from llmprof.errors import CapabilityError
from llmprof.schema.settings import KvLayout
from tests.published import decoder

MODEL = decoder("small", 3, 32, 48, 4, 2, 50)
TOKEN_BYTES = 2 * 3 * 2 * 8 * 2
"""K and V, layers, KV heads, head_dim, bf16."""


def a_cache(batch: int = 2, max_tokens: int = 10) -> ContiguousCache:
    return ContiguousCache(MODEL, batch, max_tokens, torch.bfloat16, "cpu")


def test_sizes() -> None:
    cache = a_cache()
    assert cache.bytes_per_token == TOKEN_BYTES
    assert cache.bytes_reserved == 2 * 10 * TOKEN_BYTES


def test_what_was_appended_is_read_back_after_what_was_there() -> None:
    cache = a_cache()
    parts = [torch.randn(3, 2, 2, 2, new, 8).bfloat16() for new in (4, 1, 2)]
    for index, part in enumerate(parts):
        cache.begin_step(part.shape[4])
        for layer in range(3):
            cache.append(layer, part[layer])
            whole = torch.cat([earlier[layer] for earlier in parts[: index + 1]], dim=3)
            keys, values = cache.read(layer)
            assert torch.equal(keys, whole[0])
            assert torch.equal(values, whole[1])
        cache.advance(part.shape[4])
    assert cache.num_tokens == 7


def test_reading_copies_nothing() -> None:
    cache = a_cache()
    cache.begin_step(3)
    keys, _ = cache.read(1)
    new = torch.ones(2, 2, 2, 3, 8, dtype=torch.bfloat16)
    cache.append(1, new)
    assert torch.equal(keys, new[0])


def test_reset_keeps_the_tokens_that_it_is_told_to_keep() -> None:
    cache = a_cache()
    cache.fill_random(6, seed=1)
    cache.begin_step(1)
    before = cache.read(0)[0][:, :, :6].clone()
    cache.advance(1)
    cache.reset(6)
    cache.begin_step(1)
    assert cache.num_tokens == 6
    assert torch.equal(cache.read(0)[0][:, :, :6], before)


def test_a_filled_cache_holds_noise_of_its_seed_and_no_more() -> None:
    first, again, other = a_cache(), a_cache(), a_cache()
    first.fill_random(8, seed=3)
    again.fill_random(8, seed=3)
    other.fill_random(8, seed=4)
    held = []
    for cache in (first, again, other):
        cache.begin_step(2)
        held.append(torch.stack([torch.stack(cache.read(layer)) for layer in range(3)]).float())
    assert torch.equal(held[0], held[1])
    assert not torch.equal(held[0], held[2])
    filled, room = held[0][..., :8, :], held[0][..., 8:, :]
    assert abs(float(filled.std()) - 1) < 0.1
    assert not room.any()


def test_no_cache_gives_back_the_step() -> None:
    cache = NoCache()
    new = torch.randn(2, 1, 2, 3, 8)
    cache.begin_step(3)
    cache.append(0, new)
    keys, values = cache.read(0)
    assert torch.equal(keys, new[0])
    assert torch.equal(values, new[1])
    cache.advance(3)
    assert (cache.num_tokens, cache.bytes_reserved, cache.bytes_per_token) == (0, 0, 0)


def test_a_paged_cache_is_refused() -> None:
    with pytest.raises(CapabilityError, match="paged"):
        make_cache(KvLayout.PAGED, MODEL, batch=1, max_tokens=4, dtype=torch.float32, device="cpu")
