import pytest

from llmprof.instruments.canary import Canary, _dependent_additions


class CpuTime:
    """CPU time that a chunk takes, by turns; the additions themselves take none of it."""

    def __init__(self, *chunks_ns: int) -> None:
        self._chunks_ns = list(chunks_ns)
        self._time_ns = 0
        self._begins = True

    def __call__(self) -> int:
        if not self._begins and self._chunks_ns:
            self._time_ns += self._chunks_ns.pop(0)
        self._begins = not self._begins
        return self._time_ns


def test_the_best_chunk_counts() -> None:
    # Sized by 7 chunks of 100,000 additions, the best in 50 us: 2e9 additions per second.
    sizing = [60_000, 50_000, 90_000, 70_000, 70_000, 70_000, 70_000]
    reading = [1_400_000, 1_300_000, 1_250_000, 1_600_000, 5_000_000, 1_300_000, 1_300_000]
    canary = Canary(CpuTime(*sizing, *reading))
    assert canary.read_hz() == pytest.approx(2_000_000 / 1.25e-3)


def test_cpu_time_that_stands_still_gives_no_reading() -> None:
    assert Canary(CpuTime(*[1_000_000] * 7)).read_hz() is None


def test_the_chain_is_not_folded_away() -> None:
    # Strict addition of 0.1 a thousand times: the sum in order, not the product.
    total = 0.0
    for _ in range(1000):
        total += 0.1
    canary = Canary()
    assert canary._chain(1000, 0.1) == total != 100.0
    assert _dependent_additions(3, 1.0) == 3.0


def test_a_reading_is_a_plausible_clock() -> None:
    reading = Canary().read_hz()
    assert reading is not None
    assert 1e7 < reading < 1e10
