"""`llmprof inspect` from the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmprof.architectures.installed_model import INSTALLED_MODEL
from llmprof.cli.app import execute

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "numba", "jinja2")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert execute(["inspect", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert execute(["inspect", *arguments]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    (line,) = streams.err.splitlines()
    return line


@pytest.mark.model
def test_the_installed_model(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, INSTALLED_MODEL)
    assert found["parameters_total"] == 134_515_008
    assert found["kv_bytes_per_token"] == 23_040
    assert found["prefill"]["flops_dense"] == 126_892_376_064
    assert found["prefill"]["flops_causal"] == 117_850_374_144
    assert found["decode"]["flops"] == 304_418_304
    assert "q4_1" in found["weight_dtypes"]


def test_flags_and_settings_reach_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(
        capsys,
        "llama-3.1-8b",
        "--prompt-tokens",
        "16",
        "--context",
        "0",
        "--batch",
        "3",
        "--set",
        "kv_cache.dtype=int8",
        "--set",
        "weights.dtype=fp32",
    )
    assert found["batch"] == 3
    assert found["prefill"]["tokens"] == 16
    assert found["decode"]["context_tokens"] == 0
    assert found["kv_bytes_per_token"] == 2 * 32 * 8 * (128 + 4)
    assert found["weight_bytes"] == 4 * 8_030_261_248


def test_a_settings_file_gives_model_and_lengths(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("model: llama-2-7b\nworkload: {prompt_tokens: 100, batch: 2}\n")
    found = document(capsys, str(config), "--batch", "5")
    assert found["batch"] == 5
    assert found["prefill"]["tokens"] == found["decode"]["context_tokens"] == 100


@pytest.mark.parametrize(
    ("context", "sizes", "total"),
    [
        ("131072", "40.0 GiB (42.95 GB)", "131,072 tokens x 1 sequence = 42,949,672,960 bytes"),
        ("128000", "39.1 GiB (41.94 GB)", "128,000 tokens x 1 sequence = 41,943,040,000 bytes"),
    ],
)
def test_the_cache_of_a_70b_model_as_a_product(
    capsys: pytest.CaptureFixture[str], context: str, sizes: str, total: str
) -> None:
    assert execute(["inspect", "llama-3.1-70b", "--context", context]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert sizes in text
    assert f"2 (K and V) x 80 layers x 8 KV heads x 128 head dim x 2 bytes x {total}" in text


def test_experts_windows_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "gpt-oss-20b", "--set", "parallel.tensor=8", "--context", "8192")
    assert found["parameters_active"] == {
        "with_embedding_and_head": 4_187_440_704,
        "without_embedding": 3_608_307_264,
        "without_embedding_and_head": 3_029_173_824,
    }
    assert found["weight_bytes"] == 13_761_264_768
    assert found["kv_cache"]["ideal_bytes"] == 204_472_320
    assert found["kv_cache"]["engine_allocated_bytes"] == 402_653_184
    assert found["device"] == {
        "devices": 8,
        "weight_bytes": found["device"]["weight_bytes"],
        "kv_bytes_per_token": 49_152 / 8,
    }
    short = document(capsys, "gpt-oss-20b")
    assert short["decode"]["flops"] == 7_340_310_528
    assert short["decode"]["flops_full_attention"] == 7_416_004_608


def test_what_the_engine_cannot_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "deepseek-v3", "--set", "weights.source=random"]
    assert execute(arguments) == 7
    assert "latent attention" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("llama-2-7b",), ("qwen3-8b", "--batch", "64")])
def test_text_fits_one_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert execute(["inspect", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 36
    assert max(len(line) for line in lines) <= 80
    text = "\n".join(lines)
    assert "KV heads x 128 head dim x 2 bytes = " in text
    for group in ("QKV projection", "attention", "LM head", "total"):
        assert group in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no-such-model",), "no-such-model"),
        (("no/such/model.gguf",), "no/such/model.gguf"),
        (("llama-2-7b", "--prompt-tokens", "4097"), "4,096 positions"),
        (("llama-2-7b", "--prompt-tokens", "0"), "--prompt-tokens"),
        (("llama-2-7b", "--set", "weights.dtyp=fp32"), "weights.dtype"),
        (("llama-2-7b", "--set", "workload.batch=2"), "--batch"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refusal(capsys, *arguments)


@pytest.mark.parametrize("switch", ["weights: {quantization: int8}", "kv_cache: {layout: none}"])
def test_a_switch_that_would_change_the_figures_is_not_ignored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, switch: str
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"model: llama-2-7b\n{switch}\n")
    assert execute(["inspect", str(config)]) == 7
    assert switch.split(":")[0] in capsys.readouterr().err


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys; from llmprof.cli.inspect import inspect; inspect('llama-2-7b', json=True);"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
