"""The only place that turns 0.00123 into "1.23 ms"."""

import math

_SI = (
    (1e-9, "n"),
    (1e-6, "µ"),
    (1e-3, "m"),
    (1.0, ""),
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
    (1e15, "P"),
)
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def rounded(value: float, digits: int = 3) -> float:
    """`value` to so many significant digits: 0.9996 -> 1.0."""
    return float(f"{value:.{digits - 1}e}")


def significant(value: float, digits: int = 3) -> str:
    """`value` with so many significant digits and no exponent: 1234.5 -> "1,230", 0.01234 -> "0.0123"."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    # The exponent after rounding: 0.9996 has four decimals, the 1.00 that it is printed as has two.
    scientific = f"{value:.{digits - 1}e}"
    decimals = digits - 1 - int(scientific.partition("e")[2])
    return f"{float(scientific):,.{max(decimals, 0)}f}"


def si(value: float, unit: str, digits: int = 3) -> str:
    """Scale by a power of 1000: 3.2e10 and "B/s" give "32.0 GB/s"."""
    if value == 0:
        return f"0 {unit}"
    magnitude = rounded(abs(value), digits)
    scale, prefix = _SI[0]
    for candidate, name in _SI:
        if magnitude >= candidate:
            scale, prefix = candidate, name
    return f"{significant(value / scale, digits)} {prefix}{unit}"


def seconds(value: float, digits: int = 3) -> str:
    """0.00123 -> "1.23 ms"; a quarter of an hour stays in seconds."""
    if rounded(abs(value), digits) >= 1000:
        return f"{significant(value, digits)} s"
    return si(value, "s", digits)


def byte_count(value: float, digits: int = 3) -> str:
    """Binary: 1073741824 -> "1.00 GiB"."""
    scaled, unit = float(value), _BINARY[0]
    for unit in _BINARY:
        if rounded(abs(scaled), max(digits, 4)) < 1024 or unit == _BINARY[-1]:
            break
        scaled /= 1024
    return f"{scaled:.0f} B" if unit == "B" else f"{significant(scaled, digits)} {unit}"


def decimal_bytes(value: float, digits: int = 3) -> str:
    """Decimal: 42949672960 -> "42.9 GB"."""
    return si(value, "B", digits)


def bytes_per_s(value: float, digits: int = 3) -> str:
    return si(value, "B/s", digits)


def flops_per_s(value: float, digits: int = 3) -> str:
    return si(value, "FLOP/s", digits)


def flops(value: float, digits: int = 3) -> str:
    return si(value, "FLOP", digits)


def count(value: float, digits: int = 3) -> str:
    """1234567 -> "1.23 M"; small integers stay whole."""
    if abs(value) < 10_000 and float(value).is_integer():
        return f"{int(value):,}"
    return si(value, "", digits).strip()


def number_of(number: int, noun: str) -> str:
    """1 and "thread" -> "1 thread"; 2 -> "2 threads"; for nouns that take an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def exact(value: float) -> str:
    """Every digit of a whole number: 134515008 -> "134,515,008"; a fraction keeps its own."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,}"


def percent(fraction: float, digits: int = 2) -> str:
    """0.4567 -> "46 %"."""
    value = 100 * fraction
    if abs(value) >= 10 or value == 0:
        return f"{value:.0f} %"
    return f"{significant(value, digits)} %"


def ratio(value: float, digits: int = 3) -> str:
    """2.0 -> "2.00 x"."""
    return f"{significant(value, digits)} x"


def age(value_s: float) -> str:
    """Whole units, rounded down, for people: 5400.0 -> "1 h"; what lies ahead is "0 s"."""
    for unit_s, unit in _AGES:
        if value_s >= unit_s:
            return f"{int(value_s // unit_s)} {unit}"
    return "0 s"


def signed_percent(fraction: float, digits: int = 2) -> str:
    """0.061 -> "+6.1 %"; a change of nothing is "+0 %"."""
    sign = "-" if fraction < 0 else "+"
    return f"{sign}{percent(abs(fraction), digits)}"


def signed_seconds(value: float, digits: int = 3) -> str:
    """-0.0042 -> "-4.20 ms"."""
    sign = "-" if value < 0 else "+"
    return f"{sign}{seconds(abs(value), digits)}"
