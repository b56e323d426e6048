"""Calibrated noise floors: `.llmprof/noise`, one file per machine and work."""

import hashlib
import json
from pathlib import Path

from llmprof.errors import InputError
from llmprof.schema.noise import NoiseFloor
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.documents import read_document, write_document
from llmprof.store.runs import check_runs_writable, runs_folder

_NO_WORK = ("measure", "gate", "device")
"""Groups of settings that do not change what a step does."""


def workload_key(config: RunConfig) -> str:
    """12 hex digits over the model, the work and the switches of the engine."""
    text = json.dumps(config.model_dump(mode="json", exclude=set(_NO_WORK)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def save_noise_floor(floor: NoiseFloor) -> Path:
    """Raises InputError where the folder or the file cannot be written."""
    path = _path(floor.environment_fingerprint, floor.workload_key)
    check_runs_writable()  # makes .llmprof as every other command does
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {path.parent}: {error.strerror}") from error
    write_document(path, floor)
    return path


def find_noise_floor(fingerprint: str, config: RunConfig) -> NoiseFloor | None:
    """None where this work was never calibrated here. Raises InputError for a damaged file."""
    path = _path(fingerprint, workload_key(config))
    return read_document(path, NoiseFloor)[0] if path.exists() else None


def launch_floors(record: RunRecord) -> dict[str, float]:
    """Metric -> how far two launches of this work differ here; empty where nobody calibrated."""
    floor = find_noise_floor(record.environment.fingerprint, record.settings)
    if floor is None:
        return {}
    return {one.name: one.launch_floor for one in floor.metrics if one.launch_floor is not None}


def _path(fingerprint: str, key: str) -> Path:
    # Hashed: a fingerprint comes from a file, and may hold anything.
    name = hashlib.sha256(f"{fingerprint} {key}".encode()).hexdigest()[:16]
    return runs_folder().parent / "noise" / f"{name}.json"
