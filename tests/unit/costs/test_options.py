"""Options of a run."""

import pytest

from llmprof.costs.options import CostOptions, options_from
from llmprof.errors import CapabilityError
from llmprof.schema.settings import (
    AttentionKind,
    AttentionSettings,
    KvCacheSettings,
    KvLayout,
    RunConfig,
)


def test_options_of_a_run() -> None:
    settings = RunConfig(
        model="any",
        attention=AttentionSettings(kind=AttentionKind.STANDARD),
        kv_cache=KvCacheSettings(layout=KvLayout.PAGED, block_tokens=32),
    )
    assert options_from(
        settings, compute_dtype="fp32", kv_dtype="int8", head_dim=64
    ) == CostOptions(
        attention=AttentionKind.STANDARD,
        kv_layout=KvLayout.PAGED,
        kv_bytes_per_number=1 + 4 / 64,
        compute_dtype="fp32",
        activation_bytes=4,
        score_bytes=4,
        block_tokens=32,
    )


def test_without_a_cache_its_dtype_is_not_read() -> None:
    settings = RunConfig(model="any", kv_cache=KvCacheSettings(layout=KvLayout.NONE))
    assert (
        options_from(settings, compute_dtype="bf16", kv_dtype="-", head_dim=64).kv_bytes_per_number
        == 0
    )


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(CapabilityError, match="as_stored"):
        options_from(
            RunConfig(model="any"), compute_dtype="as_stored", kv_dtype="bf16", head_dim=64
        )
