"""Seeded damage to files of every kind that llmprof reads: a result, or a one-line error, cheaply.

    python -m tests.benchmarks.hostile_files [--kind gguf-gemma3] [--count 20000] [--seed 1]

Prints a table by reader. Exit code 1 where a read raised anything but an error in one line, or took
over five seconds of processor time or, looked at in every 20th read, memory beyond twice the file
and 64 MiB. The same seed makes the same files; `--keep FOLDER` writes those that failed.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from llmprof.architectures.source import resolve_model
from llmprof.engine.tokenizer_json import tokenizer_from_json
from llmprof.store.settings_file import load_settings_text
from tests.integration.test_gguf_families import decoder, write_gguf
from tests.property.test_hostile_files import (
    GGUF,
    GGUF_HEADER,
    INDEX,
    MOST_SECONDS,
    ONE_FILE,
    SHARDS,
    TOKENIZER,
    YAML,
    bounded,
    error_of,
)

_MEASURED_EVERY: Final = 20
"""Tracing memory slows a read down by an order of magnitude."""
_MOST_FAULTS: Final = 5
"""Of one reader; then it is enough to know."""
_BYTES: Final = (b"\xff" * 8, b"\x00" * 8, b"\xff" * 7 + b"\x7f", b"\x00" * 5 + b"\x80" * 3)
_TEXTS: Final = (
    *(b"[" * 2000, b"{" * 2000, b"- " * 2000, b"1" * 5000, b"9" * 20),
    *(b"1e999", b"1e-320", b"-0", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"\x00", b"\t"),
    *(b"&a [*a]", b"*w", b"<<: *w", b"!!python/object:os.system x", b'"\\ud800"'),
    b'"../../etc/passwd.safetensors"',
)
_FAMILIES: Final = ("gemma2", "gemma3", "phi3", "mixtral", "qwen3_moe")


@dataclass(frozen=True, slots=True)
class Target:
    """A file that is damaged, what lies beside it, and what reads it."""

    name: str
    original: bytes
    head: int
    """Damage begins within so many bytes: numbers of weights are never read."""
    patches: tuple[tuple[bytes, ...], ...]
    """Pools of hostile pieces, one of which each wound draws from, or else random bytes."""
    read: Callable[[Path], object]
    beside: Mapping[str, bytes]


@dataclass(slots=True)
class Tally:
    tried: int = 0
    read: int = 0
    faults: int = 0
    slowest_s: float = 0.0


def main() -> int:
    targets = _targets()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=list(targets))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    print(f"{'reader':16} {'tried':>8} {'read':>8} {'refused':>8} {'faults':>7} {'slowest':>10}")
    faults = 0
    for kind, target in targets.items():
        if asked.kind in (None, kind):
            tally = _attack(kind, target, asked.count, asked.seed, asked.keep)
            refused = tally.tried - tally.read - tally.faults
            print(
                f"{kind:16} {tally.tried:8,} {tally.read:8,} {refused:8,} {tally.faults:7,} "
                f"{tally.slowest_s:8.3f} s",
                flush=True,
            )
            faults += tally.faults
    return 1 if faults else 0


def _targets() -> dict[str, Target]:
    def folder(path: Path) -> object:
        return resolve_model(str(path.parent))

    def gguf(original: bytes, head: int) -> Target:
        return Target("m.gguf", original, head, (_BYTES,), lambda p: resolve_model(str(p)), {})

    def text(name: str, files: Mapping[str, bytes]) -> Target:
        return Target(name, files[name], len(files[name]), (_TEXTS,), folder, files)

    weights = ONE_FILE["model.safetensors"]
    return {
        "gguf": gguf(GGUF, GGUF_HEADER),
        **{f"gguf-{family}": gguf(*_family_file(family)) for family in _FAMILIES},
        "safetensors": Target(
            "model.safetensors", weights, 3000, (_BYTES, _TEXTS), folder, ONE_FILE
        ),
        "index": text(INDEX, SHARDS),
        "config": text("config.json", ONE_FILE),
        "tokenizer": Target(
            "tokenizer.json",
            TOKENIZER,
            len(TOKENIZER),
            (_TEXTS,),
            lambda path: tokenizer_from_json(path, (1,)),
            {},
        ),
        "yaml": Target("settings.yaml", YAML, len(YAML), (_TEXTS,), _read_settings, {}),
    }


def _family_file(name: str) -> tuple[bytes, int]:
    """A GGUF file of a family with layers of its own, and where its header ends."""
    known = decoder(name)
    with TemporaryDirectory() as folder:
        data = write_gguf(Path(folder) / "m.gguf", known).read_bytes()
    return data, data.rindex(b".weight") + 48


def _read_settings(path: Path) -> object:
    text = path.read_bytes().decode(errors="surrogateescape")
    return load_settings_text(text, path.name, [])


def _attack(kind: str, target: Target, count: int, seed: int, keep: Path | None) -> Tally:
    draw, tally = random.Random(f"{kind} {seed}"), Tally()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for beside, data in target.beside.items():
            (folder / beside).write_bytes(data)
        (folder / target.name).write_bytes(target.original)
        target.read(folder / target.name)  # undamaged it is fine, or nothing would be shown
        while tally.tried < count and tally.faults < _MOST_FAULTS:
            data = _damaged(target, draw)
            (folder / target.name).write_bytes(data)
            fault = _fault(target, folder / target.name, data, tally)
            if fault:
                print(f"{kind} {tally.tried}: {fault}", file=sys.stderr)
                tally.faults += 1
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{kind}-{seed}-{tally.tried}").write_bytes(data)
    return tally


def _damaged(target: Target, draw: random.Random) -> bytes:
    """Overwritten, inserted, cut out and, every third time, cut off."""
    data = bytearray(target.original)
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(0, min(target.head, len(data)))
        patch = (
            draw.choice(draw.choice(target.patches))
            if draw.random() < 0.5
            else draw.randbytes(draw.randint(1, 8))
        )
        length = draw.choice([0, 1, 4, 8, len(patch)])
        data[start : start + length] = patch
    return bytes(data if draw.randrange(3) else data[: draw.randint(0, len(data))])


def _fault(target: Target, path: Path, data: bytes, tally: Tally) -> str | None:
    """What is wrong with how a file was read."""
    tally.tried += 1
    started = time.process_time()
    try:
        if tally.tried % _MEASURED_EVERY:
            error = error_of(lambda: target.read(path))
        else:
            error = bounded(lambda: target.read(path), len(data))
    except Exception as raised:  # noqa: BLE001 (any at all is what is looked for)
        return f"{type(raised).__name__}: {raised}"[:300]
    finally:
        spent_s = time.process_time() - started
        tally.slowest_s = max(tally.slowest_s, spent_s)
    if spent_s >= MOST_SECONDS:
        return f"took {spent_s:.1f} s"
    if error is None:
        tally.read += 1
    elif not error.message or "\n" in error.line():
        return f"not one line: {error.line()!r}"[:300]
    return None


if __name__ == "__main__":
    sys.exit(main())
