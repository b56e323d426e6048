"""The requests of a run: how long each is and when it comes, the same for the same seed."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llmprof.errors import InputError
from llmprof.schema.settings import MAX_TOKENS, LengthDistribution, WorkloadKind, WorkloadSettings

_LENGTH_KEYS = ("prompt_tokens", "output_tokens")
_ARRIVAL_KEY = "arrival_s"
_MAX_FILE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Request:
    """What a user sends."""

    index: int
    """In the trace, which is in the order of arrival."""
    arrival_s: float
    """After the start of the round."""
    prompt_tokens: int
    output_tokens: int

    @property
    def max_cached_tokens(self) -> int:
        """The last output token is sampled and never cached."""
        return self.prompt_tokens + self.output_tokens - 1


def make_trace(settings: WorkloadSettings) -> tuple[Request, ...]:
    """The requests of a workload, in the order of arrival.

    Fixed work is a trace too: `batch` requests of one length at time zero.

    Raises:
        InputError: a file that cannot be read, or a line of it that is no request.
    """
    if settings.kind is WorkloadKind.FIXED:
        one = (settings.prompt_tokens, settings.output_tokens)
        return _ordered([(0.0, *one)] * settings.batch)
    if settings.file is not None:
        return _ordered(_read(Path(settings.file), settings))
    rng = np.random.default_rng(settings.seed)
    prompts = draw_lengths(settings.lengths.prompt, settings.requests, rng)
    outputs = draw_lengths(settings.lengths.output, settings.requests, rng)
    arrivals = _arrivals(settings, settings.requests)
    return _ordered(list(zip(arrivals, map(int, prompts), map(int, outputs), strict=True)))


def longest_sequence(trace: tuple[Request, ...]) -> int:
    """Tokens that a sequence can come to hold.

    In a padded batch the longest prompt and the longest output may belong to two requests.
    """
    prompt = max(request.prompt_tokens for request in trace)
    return prompt + max(request.output_tokens for request in trace) - 1


def draw_lengths(
    distribution: LengthDistribution, count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """So many lengths in tokens, between `low` and `high`.

    `log_normal` has `mean` as the mean of the distribution before it is clipped:
    mu = ln(mean) - sigma^2 / 2.
    """
    low, high = distribution.low, distribution.high
    match distribution.kind:
        case "fixed":
            drawn = np.full(count, distribution.mean, dtype=np.float64)
        case "uniform":
            drawn = rng.integers(low, high, count, endpoint=True).astype(np.float64)
        case "log_normal":
            mu = math.log(distribution.mean) - distribution.sigma**2 / 2
            drawn = rng.lognormal(mu, distribution.sigma, count)
    return np.clip(np.rint(drawn), low, high).astype(np.int64)


def _arrivals(settings: WorkloadSettings, count: int) -> list[float]:
    """Poisson arrivals from time zero on, or everything at once. Apart from the lengths' seed."""
    rate = settings.arrival_rate_per_s
    if rate is None:
        return [0.0] * count
    gaps = np.random.default_rng((settings.seed, 1)).exponential(1 / rate, count)
    return [float(time_s) for time_s in np.cumsum(gaps) - gaps[0]]


def _ordered(requests: list[tuple[float, int, int]]) -> tuple[Request, ...]:
    by_arrival = sorted(requests, key=lambda request: request[0])
    return tuple(Request(index, *request) for index, request in enumerate(by_arrival))


def _read(path: Path, settings: WorkloadSettings) -> list[tuple[float, int, int]]:
    """One JSON object per line: `prompt_tokens`, `output_tokens` and, if known, `arrival_s`."""
    lines = _lines(path)
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise InputError(
            f"workload.file '{path}' has no requests",
            remedy='Write one per line, {"prompt_tokens": 128, "output_tokens": 32}',
        )
    drawn = _arrivals(settings, len(numbered))
    return [
        _request(line, f"{path}, line {number}", default_s)
        for (number, line), default_s in zip(numbered, drawn, strict=True)
    ]


def _lines(path: Path) -> list[str]:
    """Of a regular file: a device or a pipe could go on for ever."""
    remedy = "Give a text file of JSON lines"
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"workload.file '{path}' is no regular file", remedy=remedy)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MAX_FILE_BYTES:
                raise InputError(f"workload.file '{path}' is larger than 64 MiB", remedy=remedy)
            return file.read(size).decode().splitlines()
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path with a zero in it
        raise InputError(
            f"workload.file '{path}' cannot be read: {error}", remedy=remedy
        ) from error


def _request(line: str, where: str, default_s: float) -> tuple[float, int, int]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{where} is not a JSON object")
    prompt, output = (_number(data, key, where, _is_length) for key in _LENGTH_KEYS)
    arrival_s = default_s
    if _ARRIVAL_KEY in data:
        arrival_s = float(_number(data, _ARRIVAL_KEY, where, _is_time))
    return arrival_s, int(prompt), int(output)


def _number(
    data: dict[str, Any], key: str, where: str, is_valid: Callable[[object], bool]
) -> int | float:
    value = data.get(key)
    if isinstance(value, int | float) and is_valid(value):
        return value
    wanted = (
        "a time of 0 s or more"
        if key == _ARRIVAL_KEY
        else f"a whole number from 1 to {MAX_TOKENS:,}"
    )
    raise InputError(
        f"{where}: {key} is {json.dumps(value)}, expected {wanted}",
        remedy='A line reads {"prompt_tokens": 128, "output_tokens": 32, "arrival_s": 0.5}',
    )


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TOKENS


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
