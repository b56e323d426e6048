"""The GPU check from start to end, as a dry run on the CPU with a tiny model."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
}


def test_a_dry_run_gives_the_archive_that_a_gpu_would(tmp_path: Path) -> None:
    model, out = tmp_path / "tiny", tmp_path / "out"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(TINY))
    command = [sys.executable, str(ROOT / "scripts" / "gpu_check.py"), "--device", "cpu"]
    command += ["--model", str(model), "--budget", "3600", "--out", str(tmp_path / "work")]
    environment = {**os.environ, "OUT": str(out)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with tarfile.open(out / "gpu-check.tar.gz") as archive:
        names = archive.getnames()
        summary = archive.extractfile("summary.json")
        assert summary is not None
        found = json.load(summary)
    assert {"summary.md", "report.html"} <= set(names)
    assert sum(name.startswith("runs/") for name in names) == 2
    assert found["dry_run"] is True
    assert [one["status"] for one in found["parts"]] == ["done"] * len(found["parts"])
    assert "execution.fused=on" in found["found"]["cell-fused"]["not_measured"]
    predicted = found["found"]["cell-compiled"]
    assert f"predictions/{predicted['prediction']}" in names
    assert {one["status"] for one in found["figures"]} == {"not measured"}
    values = {one["name"]: one["value"] for one in found["figures"]}
    assert values["paged decode at 32k tokens, over the read ceiling"] is None
    assert values["what the instruments cost a clean step"] > 0
