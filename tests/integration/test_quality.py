"""Accuracy of the weight formats on a real model, with the kernels that are timed."""

import json
from pathlib import Path

import pytest

from llmprof.cli.app import execute
from llmprof.experiments.quality import Text, fixed_text, measure_quality
from llmprof.schema.quality import Quality
from llmprof.schema.settings import Quantization, RunConfig, WeightsSettings

MODEL = "smollm2-135m-instruct"


def reference_text() -> Text:
    """Prompts and their continuations, from another implementation."""
    data = Path(__file__).parents[1] / "data" / "smollm2_greedy.json"
    prompts = json.loads(data.read_text())["prompts"]
    return Text("reference", "".join(one["prompt"] + one["greedy_text"] for one in prompts))


def quality(quantization: Quantization) -> Quality:
    config = RunConfig(model=MODEL, weights=WeightsSettings(quantization=quantization))
    return measure_quality(config, reference_text(), threads=2, host_available_bytes=2**33)


@pytest.mark.model
@pytest.mark.parametrize(
    ("quantization", "agreement", "origin"),
    [(Quantization.INT8, 0.95, "searched"), (Quantization.INT4, 0.87, "taken_over")],
)
def test_agreement_with_fp32(quantization: Quantization, agreement: float, origin: str) -> None:
    found = quality(quantization)
    floats, packed = found.formats
    assert found.reference.format == "fp32"
    assert found.reference.top1_agreement == 1
    assert found.reference.mean_kl_nats == pytest.approx(0, abs=1e-9)
    assert floats.format == "bf16"
    assert floats.top1_agreement >= 0.95
    assert packed.origin == origin
    assert packed.top1_agreement >= agreement
    assert packed.perplexity == pytest.approx(found.reference.perplexity, rel=0.02)
    assert 0 < packed.mean_kl_nats < 0.02
    assert found.kernels[packed.format] == f"llmprof::matvec on {packed.format}"
    assert packed.weight_bytes < floats.weight_bytes < found.reference.weight_bytes
    assert [caveat.code for caveat in found.caveats] == ["packed-file"]


def test_the_fixed_text_is_there() -> None:
    text = fixed_text()
    assert 400 < len(text.text.split()) < 600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "workload.batch=2"], "quality does not use it"),
        (["--text", "nowhere.txt"], "cannot read nowhere.txt"),
        (["--set", "weights.quantization=fp8", "--set", "weights.group_size=64"], "group_size"),
    ],
)
@pytest.mark.model
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["quality", MODEL, "--device", "cpu", "-q", *arguments]) in (2, 7)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.model
def test_a_text_of_one_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "short.txt").write_text("Hi")
    assert execute(["quality", MODEL, "--text", str(tmp_path / "short.txt"), "-q"]) == 2
    assert "has 1 tokens" in capsys.readouterr().err
