"""`llmprof predict MODEL --device-name NAME`: three models on three devices, worked out by hand.

Shapes are those of the published config.json files, bandwidths and memories those of the vendors'
datasheets; nothing here calls the formulas that it checks.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from llmprof.cli.app import execute

PROMPT, OUTPUT = 8192, 32


@dataclass(frozen=True)
class Shape:
    """Of one model in bf16."""

    parameters: int
    layers: int
    hidden: int
    vocabulary: int
    kv_numbers: int
    """Keys and values of one token in one layer: 2 x KV heads x head dimension."""
    tied: bool

    @property
    def read_parameters(self) -> int:
        """By a decode step: all but an input table of which it reads single rows."""
        return self.parameters - (0 if self.tied else self.hidden * self.vocabulary)

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_numbers


MODELS = {
    "llama-3.1-8b": Shape(8_030_261_248, 32, 4096, 128_256, 2 * 8 * 128, tied=False),
    "llama-3.2-1b": Shape(1_235_814_400, 16, 2048, 128_256, 2 * 8 * 64, tied=True),
    "mistral-7b-v0.3": Shape(7_248_023_552, 32, 4096, 32_768, 2 * 8 * 128, tied=False),
}
DEVICES = {"H100 SXM": (3350e9, 80), "A100 SXM4 80GB": (2039e9, 80), "RTX 4090": (1008e9, 24)}
"""Bytes per second, GiB."""


def predicted(
    capsys: pytest.CaptureFixture[str], model: str, device: str, batch: int, *sets: str
) -> dict[str, Any]:
    settings = (
        f"workload.batch={batch}",
        f"workload.prompt_tokens={PROMPT}",
        f"workload.output_tokens={OUTPUT}",
        *sets,
    )
    words = [word for one in settings for word in ("--set", one)]
    assert execute(["predict", model, "--device-name", device, *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("device", DEVICES)
def test_by_hand(model: str, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    shape, (bytes_per_s, gib), batch = MODELS[model], DEVICES[device], 2
    found = predicted(capsys, model, device, batch, "workload.context=synthetic")
    assert found["tier"] == "A"
    (decode,) = found["phases"]

    # The least time: every weight and the whole cache once, at the vendor's bandwidth.
    moved = [
        2 * shape.read_parameters + batch * tokens * shape.kv_bytes_per_token
        for tokens in (PROMPT, PROMPT + OUTPUT + 1)
    ]
    least = [size / bytes_per_s for size in moved]
    assert least[0] <= decode["naive"]["roofline_step_s"] <= 1.01 * least[1]
    # Kernels at 80 % of it; at worst 60 %, with up to 5 us to start each of 6 to 20 kernels a layer.
    step = decode["step_s"]
    assert least[0] / 0.8 <= step["point"] <= 1.01 * least[1] / 0.8
    assert least[0] < step["low"] < step["point"]
    most = 1.01 * least[1] / 0.6 + 20 * shape.layers * 5e-6
    assert step["point"] + 6 * shape.layers * 5e-6 < step["high"] < most
    assert decode["new_tokens_per_s"]["point"] == pytest.approx(batch / step["point"])
    assert (decode["limit"], decode["naive"]["byte_ratio_step_s"]) == ("memory", None)
    place = decode["place"]
    assert place["flops"] >= 2 * batch * shape.read_parameters
    assert place["read_bytes_per_s"] == bytes_per_s

    # What is held, and how many sequences that leaves room for.
    capacity, sequence = found["capacity"], (PROMPT + OUTPUT) * shape.kv_bytes_per_token
    assert capacity["weight_bytes"] == 2 * shape.parameters
    assert batch * (sequence - OUTPUT * shape.kv_bytes_per_token) <= capacity["kv_bytes"]
    assert capacity["kv_bytes"] <= 1.01 * batch * sequence
    assert capacity["available_bytes"] == gib * 2**30
    room = (gib * 2**30 - 2 * shape.parameters) / sequence
    assert 0.97 * room - 1 <= capacity["largest_batch"] <= 1.01 * room


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("device", DEVICES)
def test_the_first_batch_that_does_not_fit(
    model: str, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = predicted(capsys, model, device, 1_000_000, "workload.context=synthetic")
    largest = asked["capacity"]["largest_batch"]
    assert asked["settings"]["workload"]["batch"] == largest, "that one is predicted"
    (caveat,) = asked["caveats"]
    assert caveat["code"] == "does-not-fit"
    last = predicted(capsys, model, device, largest, "workload.context=synthetic")["capacity"]
    first = predicted(capsys, model, device, largest + 1, "workload.context=synthetic")["capacity"]
    assert (last["fits"], first["fits"]) == (True, False)
    held, too_much = (
        sum(one[f"{kind}_bytes"] for kind in ("weight", "kv", "activation"))
        for one in (last, first)
    )
    assert held <= DEVICES[device][1] * 2**30 < too_much


def test_prefill_is_bound_by_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    """Llama 3.1 8B, 8192 tokens: 2 FLOPs per weight and token, the head for the last one only."""
    found = predicted(capsys, "llama-3.1-8b", "H100 SXM", 1)
    prefill = next(one for one in found["phases"] if one["phase"] == "prefill")
    shape = MODELS["llama-3.1-8b"]
    layers = shape.read_parameters - shape.hidden * shape.vocabulary
    products = 2 * layers * PROMPT
    causal_attention = 2 * 2 * 4096 * (PROMPT**2 / 2) * shape.layers
    flops = products + causal_attention
    least_s = flops / 989.4e12
    assert prefill["naive"]["roofline_step_s"] == pytest.approx(least_s, rel=1e-3)
    assert least_s < prefill["step_s"]["low"]
    assert least_s / 0.8 < prefill["step_s"]["point"] < 1.1 * least_s / 0.8
    assert prefill["limit"] == "compute"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("llama-3.1-8b", "--device-name", "H1000"), "Close: H100 SXM5 80GB"),
        (("llama-3.1-8b", "--device-name", "EPYC 9654"), "states no memory. Give --memory"),
        (("llama-3.1-8b", "--device-name", "V100 SXM2 32GB"), "Set weights.dtype=fp32 or fp16"),
        (("llama-3.1-8b", "--device-name", "L4", "--on", "cpu"), "name two devices"),
        (("llama-3.1-8b", "--on", "cpu", "--memory", "8GB"), "Add --device-name NAME"),
        (("llama-3.1-8b", "--device-name", "L4", "-o", "x.foo"), "Known suffixes: .html"),
    ],
)
def test_what_no_datasheet_tells(
    words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["predict", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert problem in err
