"""Which parts are measured, when, and that a run's cache keeps them."""

from datetime import timedelta
from pathlib import Path

import pytest

from llmprof.ceilings import complete, measure
from llmprof.ceilings.complete import USUAL, ExtraPart, complete_ceilings
from llmprof.ceilings.measure import cached_ceilings
from llmprof.schema.ceilings import Ceilings, HostCost, SkinnyCeiling
from llmprof.schema.environment import Environment
from tests.unit.ceilings.factories import MIB, NOON, a_cpu, l2, l3, some_ceilings

MACHINE = a_cpu(l2(MIB), l3(8 * MIB), fingerprint="c" * 12)
HOST = HostCost(
    mode="eager",
    seconds_per_step=1e-3,
    median_s=1e-3,
    spread=0.0,
    layers=2,
    seconds_per_layer=1e-4,
    method="a fake",
)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Parts in the order in which they were measured, with their budgets."""
    monkeypatch.setenv("LLMPROF_CACHE_DIR", str(tmp_path))
    found: list[tuple[str, float]] = []

    def base(environment: Environment, device: str, **options: object) -> Ceilings:
        found.append(("base", 0.0))
        return some_ceilings(environment, measured_at=NOON)

    def part(
        part: ExtraPart, ceilings: Ceilings, device: str, budget_s: float, *_: object
    ) -> tuple[HostCost, ...]:
        found.append((part.value, budget_s))
        return (HOST,) if part is ExtraPart.HOST else ()

    monkeypatch.setattr(measure, "measure_ceilings", base)
    monkeypatch.setattr(complete, "_measure", part)
    monkeypatch.setattr(complete, "is_contended", lambda contention: False)
    return found


def names(measured: list[tuple[str, float]]) -> list[str]:
    return [name for name, _ in measured]


def test_a_run_measures_no_part_and_the_command_the_usual_ones(
    measured: list[tuple[str, float]],
) -> None:
    assert cached_ceilings(MACHINE, "cpu", now=NOON).host == ()
    assert names(measured) == ["base"]
    complete_ceilings(MACHINE, "cpu", now=NOON)
    assert names(measured) == ["base", *(part.value for part in USUAL)]


def test_parts_are_measured_once_and_kept_for_runs(measured: list[tuple[str, float]]) -> None:
    first = complete_ceilings(MACHINE, "cpu", [ExtraPart.HOST], now=NOON)
    assert first.host == (HOST,)
    assert first.parts_measured_at == {"host": NOON}
    assert complete_ceilings(MACHINE, "cpu", [ExtraPart.HOST], now=NOON) == first
    assert cached_ceilings(MACHINE, "cpu", now=NOON).host == (HOST,)
    assert names(measured) == ["base", "host"]


def test_refresh_is_of_the_parts_that_were_named(measured: list[tuple[str, float]]) -> None:
    complete_ceilings(MACHINE, "cpu", [ExtraPart.HOST, ExtraPart.SKINNY], now=NOON)
    complete_ceilings(MACHINE, "cpu", [ExtraPart.HOST], refresh=True, now=NOON)
    assert names(measured) == ["base", "host", "skinny", "host"]


def test_a_new_base_keeps_the_parts_with_their_own_age(measured: list[tuple[str, float]]) -> None:
    complete_ceilings(MACHINE, "cpu", [ExtraPart.HOST], now=NOON)
    later = NOON + timedelta(days=20)
    again = complete_ceilings(MACHINE, "cpu", [ExtraPart.HOST], refresh_base=True, now=later)
    assert names(measured) == ["base", "host", "base"]
    assert again.parts_measured_at == {"host": NOON}
    assert again.host == (HOST,)


@pytest.mark.parametrize(
    ("contended", "age", "again"),
    [
        (False, timedelta(days=29), False),
        (False, timedelta(days=31), True),
        (True, timedelta(minutes=59), False),
        (True, timedelta(minutes=61), True),
    ],
)
def test_parts_age_and_disturbed_ones_age_fast(
    measured: list[tuple[str, float]],
    monkeypatch: pytest.MonkeyPatch,
    contended: bool,
    age: timedelta,
    again: bool,
) -> None:
    monkeypatch.setattr(complete, "is_contended", lambda contention: contended)
    first = complete_ceilings(MACHINE, "cpu", [ExtraPart.HOST], now=NOON)
    assert first.contended_parts == (("host",) if contended else ())
    complete_ceilings(MACHINE, "cpu", [ExtraPart.HOST], now=NOON + age)
    assert names(measured).count("host") == (2 if again else 1)


def test_a_budget_is_shared_by_what_is_due(measured: list[tuple[str, float]]) -> None:
    parts = [ExtraPart.SKINNY, ExtraPart.HOST]  # 4 and 2 s by default
    complete_ceilings(MACHINE, "cpu", parts, budget_s=3.0, now=NOON)
    assert measured[1:] == [("skinny", 2.0), ("host", 1.0)]


def test_roofs_that_disagree_with_themselves_are_measured_again_after_an_hour() -> None:
    roof = SkinnyCeiling(
        format="bf16",
        rows=1,
        out_features=2048,
        in_features=2048,
        level="DRAM",
        bytes_per_s=14e9,
        median_bytes_per_s=9e9,
        spread=0.9,
        kernel="a kernel",
    )
    old = some_ceilings(MACHINE).model_copy(update={"parts_measured_at": {"skinny": NOON}})
    shaken = old.model_copy(update={"skinny": (roof,)})
    steady = old.model_copy(update={"skinny": (roof.model_copy(update={"spread": 0.1}),)})
    later = NOON + timedelta(hours=2)
    assert complete.is_fresh(steady, ExtraPart.SKINNY, later)
    assert not complete.is_fresh(shaken, ExtraPart.SKINNY, later)
