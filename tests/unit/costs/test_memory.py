"""Bytes that must fit, against published cache sizes and sums done by hand."""

from dataclasses import replace

import pytest

from llmprof.architectures.manifest import manifest_from_config
from llmprof.costs.kv_cache import kv_bytes_per_token
from llmprof.costs.memory import (
    kv_budget_bytes,
    kv_bytes_reserved,
    kv_bytes_used,
    memory_need,
    peak_activation_bytes,
)
from llmprof.costs.options import CostOptions, options_from
from llmprof.schema.cost import KvAccess, KvRead, Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind, KvLayout, RunConfig
from tests.published import LLAMA_3_1_8B, LLAMA_3_1_70B, MISTRAL_NEMO, PUBLISHED, Published, decoder

TOY = decoder("toy", 2, 8, 12, 4, 2, 10, head_dim=3)
PAGED = CostOptions(kv_layout=KvLayout.PAGED, block_tokens=16)
NO_CACHE = CostOptions(kv_layout=KvLayout.NONE)


@pytest.mark.parametrize("known", PUBLISHED, ids=lambda known: known.model.name)
def test_kv_bytes_per_token_of_public_models(known: Published) -> None:
    assert kv_bytes_per_token(known.model, 2.0) == known.kv_bytes_per_token


@pytest.mark.parametrize(
    ("model", "number", "expected"),
    [
        (decoder("mha", 32, 4096, 11008, 32, 32, 32_000), 2.0, 524_288),
        (decoder("gqa", 32, 4096, 11008, 32, 8, 32_000), 2.0, 131_072),
        (MISTRAL_NEMO, 2.0, 163_840),  # head_dim 128, although 5120 / 32 = 160
        (LLAMA_3_1_8B, 34 / 32, 69_632),  # q8_0: 34 bytes for 32 numbers
    ],
    ids=["mha", "gqa", "explicit-head-dim", "scales"],
)
def test_kv_bytes_per_token(model: ModelConfig, number: float, expected: int) -> None:
    assert kv_bytes_per_token(model, number) == expected


def test_long_context_of_a_70b_is_40_gib() -> None:
    used = kv_bytes_used(LLAMA_3_1_70B, CostOptions(), (131_072,))
    assert used == 40 * 2**30


def test_contiguous_reserves_the_largest_and_paged_whole_blocks() -> None:
    per_token = 2 * 2 * 6 * 2
    lengths = (1, 16, 17)
    assert kv_bytes_used(TOY, CostOptions(), lengths) == 34 * per_token
    assert kv_bytes_reserved(TOY, CostOptions(), lengths, max_tokens=100) == 300 * per_token
    assert kv_bytes_reserved(TOY, PAGED, lengths, max_tokens=100) == 64 * per_token
    assert kv_bytes_reserved(TOY, NO_CACHE, lengths, max_tokens=100) == 0
    assert kv_bytes_used(TOY, NO_CACHE, lengths) == 0


def test_standard_attention_needs_room_for_its_scores() -> None:
    shape = StepShape(
        phase=Phase.PREFILL,
        sequences=(SequenceShape(new_tokens=100, cached_tokens=0),),
        logit_rows=1,
    )
    flash = peak_activation_bytes(TOY, shape, CostOptions())
    standard = peak_activation_bytes(TOY, shape, CostOptions(attention=AttentionKind.STANDARD))
    stays, output, heads = 8 + 2 * 3, 8, 12 + 6 + 6  # residual and rotations; what is projected
    assert flash == 2 * 100 * (stays + output + 3 * 12 + heads)  # in the feed forward
    buffers, masks = 2 * 2**18 * 2, 2 * 100 * 100  # 40,000 numbers, rounded up; one byte each
    assert standard == flash + buffers + masks


@pytest.mark.parametrize(
    ("layout", "sequences_at_once"), [(KvLayout.CONTIGUOUS, 30), (KvLayout.PAGED, 1)]
)
def test_scores_are_those_of_the_prompts_attended_to_at_once(
    layout: KvLayout, sequences_at_once: int
) -> None:
    shape = StepShape(
        phase=Phase.PREFILL,
        sequences=(SequenceShape(count=30, new_tokens=512, cached_tokens=0),),
        logit_rows=30,
    )
    flash = CostOptions(kv_layout=layout)
    standard = CostOptions(kv_layout=layout, attention=AttentionKind.STANDARD)
    kept = peak_activation_bytes(TOY, shape, standard) - peak_activation_bytes(TOY, shape, flash)
    scores, mask = 4 * 512 * 512 * sequences_at_once, 512 * 512
    masks = 1 if layout is KvLayout.CONTIGUOUS else 30  # kept for the whole step
    assert kept == 2 * 2 * scores + 2 * mask * masks


def test_a_gathered_cache_is_beside_its_copy() -> None:
    """Of one layer: 8 sequences of 1,000 tokens, in blocks of 16, K and V of 2 heads of 3 numbers."""
    decode = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(count=8, new_tokens=1, cached_tokens=999),),
        logit_rows=8,
    )
    gathered = KvAccess(decode=KvRead.GATHERED)
    tokens = 8 * 63 * 16
    for number, copied in ((2.0, 2), (1.0, 1 + 2)):
        in_place = CostOptions(kv_layout=KvLayout.PAGED, kv_bytes_per_number=number)
        copies = replace(in_place, kv_access=gathered)
        more = peak_activation_bytes(TOY, decode, copies)
        attending = 2 * 8 * (8 + 6 + 8 + 12 + 6 + 6 + 12)
        assert more == attending + tokens * 2 * 6 * copied


def test_logits_and_their_copy_are_the_peak_of_many_short_sequences() -> None:
    model = decoder("wide", 1, 8, 12, 4, 2, 1000, head_dim=3)
    shape = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(count=5, new_tokens=1, cached_tokens=9),),
        logit_rows=5,
    )
    assert peak_activation_bytes(model, shape, CostOptions()) == 2 * 5 * (8 + 2 * 3 + 2 * 1000)


def test_memory_need_of_a_run() -> None:
    manifest = manifest_from_config(LLAMA_3_1_8B, "bf16")
    need = memory_need(
        LLAMA_3_1_8B, manifest, CostOptions(), batch=4, prompt_tokens=512, max_tokens=1024
    )
    assert need.weight_bytes == 16_060_522_496
    assert need.kv_bytes == 4 * 1024 * 131_072
    assert need.total_bytes == need.weight_bytes + need.kv_bytes + need.activation_bytes


def test_without_a_cache_the_whole_context_is_computed_at_the_end() -> None:
    manifest = manifest_from_config(TOY, "bf16")
    short = memory_need(TOY, manifest, CostOptions(), batch=1, prompt_tokens=50, max_tokens=100)
    long = memory_need(TOY, manifest, NO_CACHE, batch=1, prompt_tokens=50, max_tokens=100)
    assert long.kv_bytes == 0
    assert long.activation_bytes == 2 * short.activation_bytes


def test_an_absurd_batch_is_a_number_like_any_other() -> None:
    """Asked before anything is reserved: it must not list a length for each of the sequences."""
    need = memory_need(
        TOY,
        manifest_from_config(TOY, "bf16"),
        PAGED,
        batch=10**12,
        prompt_tokens=10,
        max_tokens=20,
    )
    assert need.kv_bytes == 10**12 * 32 * (2 * 2 * 6 * 2)


@pytest.mark.parametrize(
    ("total", "others", "fraction", "own_peak", "budget"),
    [
        (24.0, 12.0, 0.4, 6.0, 3.6),  # another process holds half: its 12 are not ours to subtract
        (24.0, 12.0, 0.9, 6.0, 6.0),  # no more than is free beside it
        (24.0, 12.0, 0.2, 6.0, 0.0),
        (24.0, 23.0, 0.9, 6.0, 0.0),
        (24.0, 0.0, 0.9, 6.0, 15.6),
    ],
)
def test_a_budget_beside_others_is_never_negative(
    total: float, others: float, fraction: float, own_peak: float, budget: float
) -> None:
    found = kv_budget_bytes(
        total_bytes=total * 1e9,
        fraction=fraction,
        own_peak_bytes=own_peak * 1e9,
        free_bytes=(total - others - own_peak) * 1e9,
    )
    assert found == pytest.approx(budget * 1e9)


def test_flashinfer_holds_a_workspace_however_small_the_step() -> None:
    """128 MiB, as its documentation recommends, beside everything else."""
    config = RunConfig.model_validate({"model": "m", "attention": {"backend": "flashinfer"}})
    asked = options_from(config, compute_dtype="bf16", kv_dtype="bf16", head_dim=128)
    plain = replace(asked, workspace_bytes=0)
    shape = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(new_tokens=1, cached_tokens=64),),
        logit_rows=1,
    )
    more = [peak_activation_bytes(LLAMA_3_1_8B, shape, one) for one in (asked, plain)]
    assert more[0] - more[1] == 128 * 2**20
