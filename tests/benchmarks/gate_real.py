"""Real gates on this machine: the demo against itself, and against a model with 10 % more layers.

Run from the root of the checkout, on a quiet machine:

    python -m tests.benchmarks.gate_real --same 20 --slower 10

The demo model takes 256 prompt and 16 output tokens, weights are bf16 and the tolerance is 5 %. The
slower candidate has random weights and is judged against the unchanged shape with random weights; only
times are gated, since its bytes and operators would give it away.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from llmprof.architectures.source import resolve_model
from llmprof.errors import LlmprofError
from llmprof.experiments.arm_process import ArmPlan
from llmprof.experiments.gate_run import run_gate
from llmprof.schema.gate_result import GateResult, GateVerdict
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import RunConfig, WeightSource
from llmprof.store.progress import NullProgress

DEMO = "smollm2-135m-instruct"
MORE_LAYERS = 0.10
ERROR = "error"
"""Of a gate that ended with an LlmprofError."""
TIMED = ("prefill.ttft_s.p50", "decode.tpot_s.p50")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--same", type=int, default=20, help="gates of the demo against itself")
    parser.add_argument("--slower", type=int, default=10, help="gates against more layers")
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    settings = _settings(options.tolerance, options.threads)
    same = _gates(
        "same", options.same, _plan("demo", DEMO, settings), _plan("demo", DEMO, settings)
    )
    with tempfile.TemporaryDirectory() as folder:
        shape = resolve_model(DEMO, weights=WeightSource.FILE).config
        plans = [
            _plan(
                name, str(_config_file(Path(folder) / name, shape, layers)), settings, random=True
            )
            for name, layers in (
                ("shape", shape.num_hidden_layers),
                ("deeper", round(shape.num_hidden_layers * (1 + MORE_LAYERS))),
            )
        ]
        slower = _gates("10 % more layers", options.slower, *plans)
    fine = (
        not same[ERROR] + slower[ERROR]
        and same[GateVerdict.FAIL] == 0
        and same[GateVerdict.PASS] >= 0.9 * options.same
        and slower[GateVerdict.FAIL] >= 0.9 * options.slower
    )
    print(
        "no error, no false FAIL, 90 % PASS of the same, 90 % FAIL of the slower:",
        "yes" if fine else "NO",
    )
    return 0 if fine else 1


def _settings(tolerance: float, threads: int | None) -> dict[str, object]:
    return {
        "weights": {"dtype": "bf16"},
        "execution": {"threads": threads},
        "workload": {"prompt_tokens": 256, "output_tokens": 8},
        "gate": {
            "tolerance": tolerance,
            "metrics": [{"name": name, "tolerance": tolerance} for name in TIMED],
        },
    }


def _plan(label: str, model: str, settings: dict[str, object], *, random: bool = False) -> ArmPlan:
    weights = {"dtype": "bf16", "source": "random" if random else "file"}
    text = json.dumps({**settings, "model": model, "weights": weights})
    return ArmPlan(label, RunConfig.model_validate_json(text))


def _config_file(folder: Path, shape: ModelConfig, layers: int) -> Path:
    """A config.json of the demo's shape with so many layers."""
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(
        json.dumps(
            {
                "model_type": shape.model_type,
                "architectures": ["LlamaForCausalLM"],
                "num_hidden_layers": layers,
                "hidden_size": shape.hidden_size,
                "intermediate_size": shape.intermediate_size,
                "num_attention_heads": shape.num_attention_heads,
                "num_key_value_heads": shape.num_key_value_heads,
                "head_dim": shape.head_dim,
                "vocab_size": shape.vocab_size,
                "max_position_embeddings": shape.max_position_embeddings,
                "rope_theta": shape.rope_theta,
                "rms_norm_eps": shape.rms_norm_eps,
                "tie_word_embeddings": shape.tie_word_embeddings,
                "torch_dtype": "bfloat16",
            }
        )
    )
    return path


def _gates(name: str, count: int, baseline: ArmPlan, candidate: ArmPlan) -> Counter[str]:
    """Each verdict with how often it came, errors with them: a gate that breaks does not end the rest."""
    ends: Counter[str] = Counter()
    for number in range(count):
        started = time.perf_counter()
        try:
            result = run_gate(baseline, candidate, progress=NullProgress())
        except LlmprofError as error:
            end, told = ERROR, f"{ERROR.upper():12} {error.line()}"
        else:
            end, told = result.verdict.value, _line(result)
        ends[end] += 1
        print(f"{name} {number + 1}/{count}: {told}, {time.perf_counter() - started:.0f} s")
    counts = ", ".join(f"{ends[end]} {end.upper()}" for end in (*GateVerdict, ERROR))
    print(f"{name}: {counts} of {count}")
    return ends


def _line(result: GateResult) -> str:
    spoiled = sum(pair.rejected is not None for pair in result.pairs)
    figures = ", ".join(
        f"{one.metric.name} {one.ratio.point - 1:+.2%} [{one.ratio.low - 1:+.2%}, "
        f"{one.ratio.high - 1:+.2%}]"
        for one in result.judgements
        if one.ratio is not None
    )
    return (
        f"{result.verdict.value.upper():12} {figures}, {len(result.pairs)} pairs, {spoiled} spoiled"
    )


if __name__ == "__main__":
    sys.exit(main())
