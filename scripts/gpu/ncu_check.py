"""DRAM bytes that Nsight Compute counts beside ours, for decode steps of a few layers of the model."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scripts.gpu.cells import base_settings
from scripts.gpu.job import Job

if TYPE_CHECKING:
    from llmprof.store.ncu_csv import ProfiledKernel

STEPS: Final = 2
BEGUN: Final = "ncu-begun.json"
"""Cases, in the order of their marks among the kernels."""
_MARK: Final = "spin_kernel"
"""What torch.cuda._sleep runs."""
_WRITING_S: Final = 6.0
"""Of ncu, after the process that it counts has ended."""
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
    """All cases in one process under ncu, whose counting starts with the steps themselves."""
    ncu = shutil.which("ncu")
    if ncu is None:
        job.found("ncu", {"not_measured": "ncu is not on the PATH"})
        return
    job.found("ncu", _counted(job, ncu))


def _counted(job: Job, ncu: str) -> dict[str, Any]:
    """By case, what there is of it, or why there is nothing."""
    file, seconds = (job.folder / "ncu.csv").resolve(), job.left_s
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--cache-control", "none"]
    command += ["--clock-control", "none", "--profile-from-start", "off", "--metrics", _METRICS]
    command += ["--log-file", str(file), sys.executable, "-m", "scripts.gpu.ncu_target"]
    command += [job.device, job.model, str(job.folder), f"{seconds - _WRITING_S:.1f}"]
    why = ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode:
            why = (done.stderr.strip() or done.stdout.strip())[-_LONGEST:]
    except subprocess.TimeoutExpired:
        why = f"ncu did not end within {seconds:.0f} s"
    return {
        case: _of_case(case, job.folder, kernels, _said_by_ncu(file) or why)
        for case, kernels in _kernels_of(file, job.folder).items()
    }


def _kernels_of(file: Path, folder: Path) -> "dict[str, list[ProfiledKernel]]":
    """Of each case, in the order in which they were begun; those of one stand after its mark."""
    from llmprof.errors import LlmprofError
    from llmprof.store.ncu_csv import read_ncu_csv

    found: dict[str, list[ProfiledKernel]] = {case: [] for case in CASES}
    with suppress(LlmprofError, OSError):
        begun = iter(json.loads((folder / BEGUN).read_text()))
        own: list[ProfiledKernel] = []
        for kernel in read_ncu_csv(file):
            if _MARK in kernel.name:
                own = found.get(next(begun, ""), [])
            else:
                own.append(kernel)
    return found


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


def _of_case(
    case: str, folder: Path, kernels: "Sequence[ProfiledKernel]", why: str
) -> dict[str, Any]:
    """Measured over counted; activations may be served by a cache, so counted is an interval."""
    from llmprof.analysis.ncu import dram_bytes_of
    from llmprof.schema.cost import StepCost

    if error_of(folder, case).exists():
        return {"not_measured": error_of(folder, case).read_text()[:_LONGEST]}
    if not cost_of(folder, case).exists() or not kernels:
        return {"not_measured": why or "the time of this part was over"}
    cost = StepCost.model_validate_json(cost_of(folder, case).read_bytes())
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


def cost_of(folder: Path, case: str) -> Path:
    """Where the target leaves what a step costs, once all of its steps have run."""
    return folder / f"ncu-{case}.cost.json"


def error_of(folder: Path, case: str) -> Path:
    """Where the target leaves why it has no figure of a case."""
    return folder / f"ncu-{case}.error.txt"


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
