"""DRAM bytes that Nsight Compute counts beside ours, for decode steps of a few layers of the model."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from scripts.gpu.cells import base_settings
from scripts.gpu.job import Job

STEPS: Final = 2
_TIMEOUT_S: Final = 25.0
_LEAST_S: Final = 8.0
_METRICS: Final = "gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum"
CASES: Final[dict[str, dict[str, Any]]] = {
    "weights": {},
    "kv": {"workload.prompt_tokens": 16384, "workload.context": "synthetic", "workload.batch": 8},
    "standard": {"attention.kind": "standard", "workload.prompt_tokens": 4096},
    "int4": {"weights.quantization": "int4"},
}
_LAYERS: Final = 2
_ERROR: Final = "==ERROR=="
_OF_THE_TARGET: Final = "application returned an error code"
_LONGEST: Final = 300


def compare_with_ncu(job: Job) -> None:
    """Each case in a process under ncu, whose counting starts with the steps themselves.

    What ncu itself refuses, or does not end in time, it would again: the other cases are not tried.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        job.found("ncu", {"not_measured": "ncu is not on the PATH"})
        return
    found: dict[str, Any] = {}
    try:
        for case in CASES:
            if job.left_s < _LEAST_S:
                found[case] = {"not_measured": "the time of this part was over"}
            else:
                found[case] = _case(job, ncu, case, min(_TIMEOUT_S, job.left_s))
            job.found("ncu", found)
    except _NcuError as error:
        job.found("ncu", {**{case: {"not_measured": str(error)} for case in CASES}, **found})


def _case(job: Job, ncu: str, case: str, seconds: float) -> dict[str, Any]:
    from llmprof.errors import LlmprofError

    file = (job.folder / f"ncu-{case}.csv").resolve()
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--cache-control", "none"]
    command += ["--clock-control", "none", "--profile-from-start", "off", "--metrics", _METRICS]
    command += ["--log-file", str(file), sys.executable, "-m", "scripts.gpu.ncu_target"]
    command += [case, job.device, job.model, str(job.folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        refused = _said_by_ncu(file)
        if refused:
            raise _NcuError(refused)
        if done.returncode or not file.exists():
            return {"not_measured": (done.stderr.strip() or done.stdout.strip())[-_LONGEST:]}
        return _compared(file, Path(job.folder / f"ncu-{case}.cost.json"))
    except subprocess.TimeoutExpired as error:
        raise _NcuError(f"ncu did not end within {seconds:.0f} s") from error
    except (LlmprofError, OSError) as error:
        return {"not_measured": str(error)[:_LONGEST]}


class _NcuError(Exception):
    """Of ncu, whatever it profiles."""


def _said_by_ncu(file: Path) -> str:
    """Its errors are where its figures would be, and on no other stream; empty where there is none."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    errors = [
        line.removeprefix(_ERROR).strip()
        for line in lines
        if line.startswith(_ERROR) and _OF_THE_TARGET not in line
    ]
    return "; ".join(errors)[:_LONGEST]


def _compared(file: Path, costs: Path) -> dict[str, Any]:
    """Measured over counted; activations may be served by a cache, so counted is an interval."""
    from llmprof.analysis.ncu import dram_bytes_of
    from llmprof.schema.cost import StepCost
    from llmprof.store.ncu_csv import read_ncu_csv

    cost = StepCost.model_validate_json(costs.read_bytes())
    kernels = read_ncu_csv(file)
    measured = dram_bytes_of(kernels)
    if measured is None:
        return {"not_measured": "the file lacks DRAM bytes of some kernels"}
    per_step = measured / STEPS
    return {
        "kernels_per_step": len(kernels) / STEPS,
        "dram_bytes": per_step,
        "counted_bytes": cost.traffic.required,
        "counted_with_activations_bytes": cost.traffic.total,
        "ratio": per_step / cost.traffic.required,
    }


def settings_of(case: str, device: str) -> dict[str, Any]:
    """Few steps, op by op: a graph would be counted as one."""
    base = {**base_settings(device), "execution.mode": "eager", "workload.output_tokens": 8}
    return {**base, **CASES[case]}


def shallow_model(model: str, folder: Path) -> str:
    """The model with two layers, as a folder with a config.json: ncu runs each kernel many times."""
    import json

    from llmprof.architectures.source import resolve_model
    from llmprof.schema.settings import WeightSource

    target = folder / "shallow"
    target.mkdir(exist_ok=True)
    source = resolve_model(model, weights=WeightSource.RANDOM).config
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": source.hidden_size,
        "intermediate_size": source.intermediate_size,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": source.num_attention_heads,
        "num_key_value_heads": source.num_key_value_heads,
        "head_dim": source.head_dim,
        "vocab_size": source.vocab_size,
        "max_position_embeddings": source.max_position_embeddings,
        "rms_norm_eps": source.rms_norm_eps,
        "rope_theta": source.rope_theta,
        "torch_dtype": "bfloat16",
    }
    (target / "config.json").write_text(json.dumps(config))
    return os.fspath(target)
