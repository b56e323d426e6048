"""What a forecast reads from the ceilings: interpolated between measured points, never beyond."""

import pytest

from llmprof.schema.ceilings import AttentionCeiling, Ceilings, SkinnyCeiling
from tests.unit.ceilings.factories import a_cpu, some_ceilings


def skinny(format: str, rows: int, gb_per_s: float) -> SkinnyCeiling:
    return SkinnyCeiling(
        format=format,
        rows=rows,
        out_features=2048,
        in_features=2048,
        level="DRAM",
        bytes_per_s=gb_per_s * 1e9,
        median_bytes_per_s=gb_per_s * 1e9,
        spread=0.0,
        kernel="a kernel",
    )


def attention(kv_dtype: str, context_tokens: int, gb_per_s: float) -> AttentionCeiling:
    return AttentionCeiling(
        layout="paged",
        kv_dtype=kv_dtype,
        kind="flash",
        context_tokens=context_tokens,
        level="DRAM",
        sequences=1,
        heads=32,
        kv_heads=8,
        head_dim=128,
        block_tokens=16,
        bytes_per_s=gb_per_s * 1e9,
        median_bytes_per_s=gb_per_s * 1e9,
        spread=0.0,
        kernel="a kernel",
    )


@pytest.fixture
def ceilings() -> Ceilings:
    return some_ceilings(a_cpu()).model_copy(
        update={
            "skinny": (
                skinny("int8_g32", 1, 40),
                skinny("int8_g32", 8, 20),
                skinny("int8_g32", 32, 10),
                skinny("bf16", 1, 50),
            ),
            "attention": (attention("bf16", 512, 10), attention("bf16", 4096, 30)),
        }
    )


@pytest.mark.parametrize(
    ("format", "rows", "gb_per_s"),
    [
        ("int8_g32", 1, 40),
        ("int8_g32", 8, 20),
        # half way from 8 to 32 rows: (1/20 + 1/10) / 2 s per GB
        ("int8_g32", 20, 1 / 0.075),
        ("int8_g32", 33, None),
        ("bf16", 1, 50),
        ("bf16", 2, None),
        ("int4_g32_asym", 1, None),
    ],
)
def test_skinny_read(ceilings: Ceilings, format: str, rows: int, gb_per_s: float | None) -> None:
    found = ceilings.skinny_read(format, rows)
    assert found == (None if gb_per_s is None else pytest.approx(gb_per_s * 1e9))


@pytest.mark.parametrize(
    ("cell", "context", "gb_per_s"),
    [
        (("paged", "bf16", "flash"), 512, 10),
        (("paged", "bf16", "flash"), 4096, 30),
        (("paged", "bf16", "flash"), 2304, 15),  # half way: (1/10 + 1/30) / 2
        (("paged", "bf16", "flash"), 100_000, 30),
        (("paged", "bf16", "flash"), 511, None),
        (("paged", "bf16", "standard"), 512, None),
        (("contiguous", "bf16", "flash"), 512, None),
        (("paged", "int8", "flash"), 512, None),
    ],
)
def test_attention_read(
    ceilings: Ceilings, cell: tuple[str, str, str], context: int, gb_per_s: float | None
) -> None:
    found = ceilings.attention_read(*cell, context)
    assert found == (None if gb_per_s is None else pytest.approx(gb_per_s * 1e9))


def test_roofs_whose_calls_disagree_are_not_read(ceilings: Ceilings) -> None:
    """Half of the calls differ by more than half of the median: nobody knows what a quiet one does."""
    noisy = tuple(one.model_copy(update={"spread": 0.6}) for one in ceilings.skinny[:1])
    shaken = ceilings.model_copy(
        update={
            "skinny": (*noisy, *ceilings.skinny[1:]),
            "attention": (ceilings.attention[0].model_copy(update={"spread": 0.6}),),
        }
    )
    assert shaken.skinny_read("int8_g32", 1) is None
    assert shaken.skinny_read("int8_g32", 8) == pytest.approx(20e9)
    assert shaken.attention_read("paged", "bf16", "flash", 512) is None
