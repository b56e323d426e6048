from datetime import timedelta

from llmprof.renderers.ceilings_parts import part_tables
from llmprof.schema.ceilings import CollectiveCeiling, SkinnyCeiling
from tests.unit.ceilings.factories import NOON, a_cpu, some_ceilings

SKINNY = SkinnyCeiling(
    format="int4_g32_asym",
    rows=8,
    out_features=2048,
    in_features=1024,
    level="LLC or DRAM",
    bytes_per_s=21e9,
    median_bytes_per_s=20e9,
    spread=0.125,
    kernel="llmprof::matvec",
)
GLOO = CollectiveCeiling(
    op="all_reduce",
    backend="gloo",
    world_size=2,
    alpha_s=170e-6,
    bytes_per_s=1.5e9,
    spread=0.2,
    sizes_bytes=(4096,),
)
BASE = some_ceilings(a_cpu())
BURST = BASE.compute[0]
CEILINGS = BASE.model_copy(
    update={
        "skinny": (SKINNY,),
        "collectives": (GLOO,),
        "sustained": (
            BURST.model_copy(
                update={"regime": "sustained", "measured_s": 3.0, "flops_per_s": 1.5e12}
            ),
        ),
        "parts_measured_at": dict.fromkeys(("skinny", "collectives", "sustained"), NOON),
        "contended_parts": ("skinny",),
    }
)


def test_a_table_per_part_with_its_age_and_whether_it_was_disturbed() -> None:
    later = NOON + timedelta(hours=5)
    parts = ("base", "skinny", "host", "sustained", "collectives")
    skinny, sustained, collectives = part_tables(CEILINGS, parts, later)
    assert skinny.caption == (
        "skinny matmuls, 2048 x 1024: weights as stored, per second; measured 5 h ago, "
        "disturbed by other processes"
    )
    assert skinny.rows[0] == (
        *("int4_g32_asym", "LLC or DRAM", "8"),
        *("21.0 GB/s", "20.0 GB/s", "12 %", "llmprof::matvec"),
    )
    assert sustained.rows[0][2:6] == ("3.00 s", "1.50 TFLOP/s", "2.0 %", "75 %")
    assert collectives.rows[0] == ("all_reduce", "2", "170 µs", "1.50 GB/s", "20 %", "gloo")
    assert collectives.caption.endswith("measured 5 h ago")


def test_only_what_was_asked_for() -> None:
    (only,) = part_tables(CEILINGS, ("collectives",), NOON)
    assert only.rows[0][0] == "all_reduce"
