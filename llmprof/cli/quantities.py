"""Sizes and rates as people type them: 24GB, 80GiB, 3.35TB/s, 10%."""

import re
from typing import Final

from llmprof.errors import InputError

_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([kKMGT]i?)B")
_PREFIXES: Final = {
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "ki": 2**10,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_MOST: Final = 2**60


def size_bytes(option: str, text: str) -> int:
    """24GB is 24 x 10^9 bytes, 24GiB 24 x 2^30.

    Raises:
        InputError: no size with its unit.
    """
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _PREFIXES[match[2]]) if match else 0
    if not 0 < size <= _MOST:
        raise InputError(
            f"{option} {text} is no size", remedy="Give a number and GB, GiB, MB or MiB: 24GB"
        )
    return size


def rate_bytes_per_s(option: str, text: str) -> float:
    """Raises InputError for anything that is no size followed by /s."""
    size, slash, second = text.strip().rpartition("/")
    if not slash or second.strip() != "s":
        raise InputError(f"{option} {text} is no rate", remedy="Give a size per second: 3350GB/s")
    return float(size_bytes(option, size))


def part_bytes(option: str, text: str, whole: int) -> int:
    """A size, or a percentage of `whole`; 0 is a size too.

    Raises:
        InputError: neither, or 100 % and more.
    """
    if text.strip() == "0":
        return 0
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", text.strip())
    if match is None:
        return size_bytes(option, text)
    if float(match[1]) >= 100:
        raise InputError(f"{option} {text} leaves nothing", remedy="Give less than 100%")
    return round(whole * float(match[1]) / 100)


def whole_numbers(option: str, texts: list[str] | None, most: int) -> tuple[int, ...]:
    """Numbers of at least 1, separated by commas, repeated or both; in their order, each once.

    Raises:
        InputError: anything else.
    """
    found: dict[int, None] = {}
    for part in ",".join(texts or []).split(",") if texts else []:
        number = part.strip().replace("_", "")
        if not re.fullmatch(r"[0-9]{1,12}", number) or not 1 <= int(number) <= most:
            raise InputError(
                f"{option} {part.strip()[:40]} is no whole number from 1 to {most:,}",
                remedy="Give numbers, separated by commas: 8192,32768",
            )
        found[int(number)] = None
    return tuple(found)
