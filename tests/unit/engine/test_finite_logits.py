"""Models whose logits are no numbers are named, not timed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from llmprof.engine.finite_logits import WatchedSampler
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.errors import MeasurementFailedError
from tests.model_files import write_safetensors_folder
from tests.tiny_decoders import LLAMA, PROMPT, load_engine, settings, tensors_of

FIXED = {"prompt_tokens": 4, "output_tokens": 3}


def broken(folder: Path, value: float, name: str = "model.layers.1.mlp.down_proj.weight") -> Path:
    """The known decoder with one wrong weight."""
    tensors = tensors_of(LLAMA.config)
    tensors[name] = np.array(tensors[name])
    tensors[name].flat[0] = value
    return write_safetensors_folder(folder, LLAMA.config, tensors)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layout", ["contiguous", "none"])
def test_a_broken_weight_fails_the_round(tmp_path: Path, value: float, layout: str) -> None:
    config = settings(
        broken(tmp_path / "model", value),
        weights={"dtype": "fp32"},
        kv_cache={"layout": layout},
        workload=FIXED,
    )
    workload = open_workload(load_engine(config), config)
    with pytest.raises(MeasurementFailedError, match="NaN or infinite in step 1 of a round"):
        workload.run_round(NullProbe())


def test_a_broken_weight_fails_served_requests(tmp_path: Path) -> None:
    config = settings(
        broken(tmp_path / "model", np.nan),
        weights={"dtype": "fp32"},
        kv_cache={"layout": "paged"},
        batching={"policy": "continuous"},
        workload={
            "kind": "trace",
            "requests": 2,
            "lengths": {
                "prompt": {"kind": "uniform", "low": 4, "high": 4},
                "output": {"kind": "uniform", "low": 3, "high": 3},
            },
        },
    )
    workload = open_workload(load_engine(config), config)
    with pytest.raises(MeasurementFailedError, match="NaN or infinite"):
        workload.run_round(NullProbe())


def test_generated_text_says_so_too(tmp_path: Path) -> None:
    engine = load_engine(settings(broken(tmp_path / "model", np.nan), weights={"dtype": "fp32"}))
    with pytest.raises(MeasurementFailedError, match="in a generated token"):
        engine.generate(PROMPT, GreedySampler(), max_tokens=4)


def test_fp16_has_a_remedy_of_its_own() -> None:
    sampler = WatchedSampler(GreedySampler())
    out = torch.zeros((1, 1), dtype=torch.long)
    sampler(torch.tensor([[1.0, float("inf")]], dtype=torch.float16), out)
    with pytest.raises(MeasurementFailedError) as failure:
        sampler.require_finite()
    assert failure.value.remedy == "fp16 ends at 65504: set weights.dtype=bf16"
    sampler.forget()
    sampler(torch.tensor([[1.0, 2.0]], dtype=torch.float16), out)
    sampler.require_finite()
    assert out.item() == 1
