"""What every part is given: the device, the model, the folder of its results, and its time."""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    device: str
    model: str
    folder: Path
    seconds: float
    """From `begin_s` on."""
    begin_s: float

    @property
    def left_s(self) -> float:
        return self.seconds - (time.perf_counter() - self.begin_s)

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    def found(self, name: str, document: object) -> None:
        """Keep a finding at once: what is on disk outlives a part that fails later."""
        write_whole(self.folder / "found" / f"{name}.json", json.dumps(document, indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """All of it or nothing, whenever the process is ended: others read the folder meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def open_folder(folder: Path) -> None:
    """For a new check: what an earlier one found there would be taken for its own.

    Its runs are moved to `earlier`, of which nothing goes into an archive.
    """
    earlier = folder / "earlier"
    earlier.mkdir(parents=True, exist_ok=True)
    for run in folder.glob("runs/*"):
        run.replace(earlier / run.name)
    for name in ("found", "predictions", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("summary.md", "summary.json", "report.html", "ncu*.*"):
        for file in folder.glob(name):
            file.unlink()
    for name in ("found", "logs", "runs"):
        (folder / name).mkdir(parents=True, exist_ok=True)


def read_found(folder: Path) -> dict[str, Any]:
    """Findings of every part, by name."""
    files = sorted((folder / "found").glob("[!.]*.json"))
    return {file.stem: json.loads(file.read_text()) for file in files}


def in_one_line(error: BaseException) -> str:
    """`CompilationError: what it says first`. Triton's begin with source, and keep the words apart."""
    words = str(getattr(error, "error_message", None) or error)
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
