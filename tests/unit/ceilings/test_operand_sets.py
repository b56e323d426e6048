"""Operands of products on a GPU: cold, however small they are."""

import pytest

from llmprof.ceilings import device_clock
from llmprof.ceilings.device_clock import device_clock as clock_of
from llmprof.ceilings.matmul import operand_bytes
from llmprof.ceilings.operand_sets import l2_bytes, operand_sets, rotated
from llmprof.ceilings.working_set import working_set_bytes
from llmprof.instruments.nvml import NvmlUnavailable
from tests.unit.ceilings.factories import MIB, a_cpu, a_gpu

H200_L2 = 50 * MIB


@pytest.mark.parametrize(
    ("edge", "dtype", "sets"),
    [(2048, "bf16", 5), (2048, "fp8", 7), (4096, "bf16", 2), (8192, "bf16", 1), (4096, "fp32", 1)],
)
def test_all_sets_together_exceed_twice_the_cache(edge: int, dtype: str, sets: int) -> None:
    """2048 x 2048 in bf16 are three matrices of 8 MiB; fp8 has two of 4 MiB and a result of 8."""
    size = operand_bytes((edge, edge, edge), dtype)
    assert operand_sets(size, H200_L2) == sets
    assert sets * size > 2 * H200_L2
    assert sets == 1 or (sets - 1) * size <= 2 * H200_L2


def test_a_cpu_keeps_its_operands() -> None:
    assert l2_bytes("cpu") == 0
    assert operand_sets(4096, 0) == 1


def test_each_call_takes_the_next_set() -> None:
    made: list[int] = []

    def prepare() -> object:
        number = len(made)
        made.append(number)
        return lambda: number

    product = rotated(prepare, 3)  # type: ignore[arg-type]
    assert [product() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert made == [0, 1, 2]


def test_skinny_products_stream_their_weights_past_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 1 to 32 rows the weights are all that counts: they come from a set beyond twice the L2."""
    monkeypatch.setattr("llmprof.ceilings.working_set.budget_bytes", lambda device: 64 << 30)
    for l2 in (0, 6 * MIB, 50 * MIB, 126 * MIB):
        assert working_set_bytes(a_gpu(l2_bytes=l2), "cuda:0") > 2 * l2


def test_the_clock_comes_from_a_session_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Session:
        def sm_clock_hz(self) -> float:
            return 1.98e9

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(device_clock, "open_nvml", lambda uuid: Session())
    with clock_of(a_gpu()) as read_hz:
        assert read_hz() == 1.98e9
        assert not closed
    assert closed


def test_no_clock_without_nvml_or_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_clock, "open_nvml", lambda uuid: NvmlUnavailable("absent"))
    for environment in (a_gpu(), a_cpu()):
        with clock_of(environment) as read_hz:
            assert read_hz() is None
