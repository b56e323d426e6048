import math
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from llmprof import units

MAGNITUDES = st.floats(min_value=1e-9, max_value=9.9e17)
DIGITS = st.integers(min_value=2, max_value=6)
SCALES = {
    "n": 1e-9,
    "µ": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
}


def read(text: str, unit: str) -> float:
    """The number that a reader takes from "12.3 GB/s"."""
    match = re.fullmatch(rf"(-?[0-9,]+(?:\.[0-9]+)?) ([nµmkMGTP]?){re.escape(unit)}", text)
    assert match, text
    return float(match[1].replace(",", "")) * SCALES[match[2]]


@given(MAGNITUDES, DIGITS)
@example(0.9996e-3, 3)
@example(999.96, 3)
def test_an_si_number_is_read_back_to_its_last_digit(value: float, digits: int) -> None:
    half_a_digit = 0.5 * 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    for sign in (1, -1):
        text = units.si(sign * value, "B/s", digits)
        assert abs(read(text, "B/s") - sign * value) <= half_a_digit * (1 + 1e-6)


@given(MAGNITUDES, DIGITS)
def test_an_si_number_shows_its_digits_and_stays_below_a_thousand(
    value: float, digits: int
) -> None:
    assume(value < 9e17)
    number = units.si(value, "B", digits).split()[0]
    assert float(number.replace(",", "")) < 1000 or value >= 1e18 * (1 - 10.0**-digits)
    shown = number.replace(",", "").replace(".", "").lstrip("0")
    assert len(shown) == digits or (digits == 2 and len(shown) == 3)  # "120" of two digits


@given(st.floats(min_value=1e-12, max_value=1e15), st.floats(min_value=1e-12, max_value=1e15))
def test_larger_numbers_never_read_smaller(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert units.rounded(low) <= units.rounded(high)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00123, "1.23 ms"),
        (0.9996e-3, "1.00 ms"),
        (0.9994e-3, "999 µs"),
        (0.99949e-3, "999 µs"),
        (59.96, "60.0 s"),
        (999.4, "999 s"),
        (999.6, "1,000 s"),
        (1234.5, "1,230 s"),
        (2.5e-9, "2.50 ns"),
        (1.5e-10, "0.150 ns"),
        (0.0, "0 s"),
        (-0.0025, "-2.50 ms"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1,230"),
        (0.01234, "0.0123"),
        (0.9996, "1.00"),
        (99.96, "100"),
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "0." + "0" * 323 + "494"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_significant(value: float, text: str) -> None:
    assert units.significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (23_040, "22.5 KiB"),
        (2**30, "1.00 GiB"),
        (2**30 - 1, "1.00 GiB"),
        (1023.7 * 2**20, "1.00 GiB"),
        (42_949_672_960, "40.0 GiB"),
        (2**60, "1,020 PiB"),
    ],
)
def test_binary_sizes(value: float, text: str) -> None:
    assert units.byte_count(value) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.decimal_bytes(42_949_672_960), "42.9 GB"),
        (units.bytes_per_s(3.2e10), "32.0 GB/s"),
        (units.flops_per_s(1.2e12), "1.20 TFLOP/s"),
        (units.flops(269_030_016), "269 MFLOP"),
        (units.count(9_999), "9,999"),
        (units.count(134_515_008), "135 M"),
        (units.count(0), "0"),
        (units.percent(0.4567), "46 %"),
        (units.percent(0.0456), "4.6 %"),
        (units.percent(1.04), "104 %"),
        (units.percent(0.0), "0 %"),
        (units.percent(-0.031), "-3.1 %"),
        (units.percent(0.0996), "10 %"),
        (units.ratio(2.0), "2.00 x"),
        (units.signed_percent(0.061), "+6.1 %"),
        (units.signed_percent(-0.52), "-52 %"),
        (units.signed_percent(0.0), "+0 %"),
        (units.signed_seconds(-0.0042), "-4.20 ms"),
        (units.signed_seconds(3e-6), "+3.00 µs"),
    ],
)
def test_the_other_views(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("value_s", "text"),
    [(-5, "0 s"), (0.9, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (86_400 * 3, "3 d")],
)
def test_age(value_s: float, text: str) -> None:
    assert units.age(value_s) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 rounds"), (1, "1 round"), (2, "2 rounds"), (1200, "1,200 rounds")]
)
def test_one_thing_and_many_things(number: int, text: str) -> None:
    assert units.number_of(number, "round") == text
