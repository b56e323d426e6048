"""`llmprof generate` from the command line."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from llmprof.cli.app import execute
from tests.model_files import tiny_config, write_safetensors_folder
from tests.tiny_decoders import LLAMA, PROMPT, tensors_of

KNOWN = json.loads((Path(__file__).parents[1] / "data" / "smollm2_greedy.json").read_text())


def generate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    code = execute(["generate", *arguments, "--threads", "1"])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


@pytest.fixture
def words(tmp_path: Path) -> str:
    """A checkpoint whose tokens are the words w0 to w47."""
    backend = Tokenizer(WordLevel({f"w{i}": i for i in range(48)}, unk_token="w0"))
    backend.pre_tokenizer = Whitespace()
    config = {**LLAMA.config, "eos_token_id": LLAMA.greedy_ids[4]}
    tensors = tensors_of(LLAMA.config)
    folder = write_safetensors_folder(tmp_path / "m", config, tensors, tokenizer=backend.to_str())
    return str(folder)


TEXT = " ".join(f"w{token}" for token in PROMPT)


def test_text(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = generate(capsys, words, "--prompt", TEXT, "--max-tokens", "3", "--quiet")
    assert code == 0
    assert out == " ".join(f"w{token}" for token in LLAMA.greedy_ids[:3]) + "\n"
    assert err == ""


def test_json_and_the_stop_token(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = generate(capsys, words, "--prompt", TEXT, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "llmprof.generation/1"
    assert document["prompt_ids"] == list(PROMPT)
    assert document["output_ids"] == list(LLAMA.greedy_ids[:5])
    assert document["text"] == " ".join(f"w{token}" for token in LLAMA.greedy_ids[:4])
    assert document["stopped"] == "eos"
    assert document["random_weights"] is False


def test_the_stop_token_can_be_ignored(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--prompt", TEXT, "--ignore-eos", "--max-tokens", "6", "--json"]
    _, out, _ = generate(capsys, words, *arguments)
    document = json.loads(out)
    assert document["output_ids"] == list(LLAMA.greedy_ids)
    assert document["stopped"] == "max_tokens"


def test_switches_reach_the_engine(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--prompt", TEXT, "--max-tokens", "4", "--json"]
    arguments += ["--set", "attention.kind=standard", "--set", "kv_cache.layout=none"]
    _, out, _ = generate(capsys, words, *arguments)
    assert json.loads(out)["output_ids"] == list(LLAMA.greedy_ids[:4])


def test_draws_follow_their_seed(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed in ("5", "5", "6"):
        arguments = ["--prompt", TEXT, "--temperature", "2", "--seed", seed, "--ignore-eos"]
        outputs.append(generate(capsys, words, *arguments, "--max-tokens", "12")[1])
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--prompt", ""], 2, "the prompt has no tokens"),
        (["--prompt", "w1 " * 100], 2, "has 128 positions"),
        (["--prompt", "w1", "--set", "kv_cache.memory_bytes=9"], 7, "kv_cache.memory_bytes"),
        (["--prompt", "w1", "--set", "batching.policy=continuous"], 2, "does not use it"),
        (["--prompt", "w1", "--set", "execution.fused=on"], 7, "execution.fused=on"),
        (["--prompt", "w1", "--set", "execution.mode=cuda_graph"], 7, "execution.mode=cuda_graph"),
        (["--prompt", "w1", "--set", "workload.batch=2"], 2, "does not use it"),
        (["--prompt", "w1", "--top-k", "3"], 2, "temperature 0"),
        (["--prompt", "w1", "--temperature", "1", "--top-p", "0"], 2, "top-p"),
        (["--prompt", "w1", "--device", "cuda:77"], 7, "cuda:77"),
    ],
)
def test_what_is_refused_is_one_line(
    arguments: list[str],
    code: int,
    message: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, out, err = generate(capsys, words, *arguments, "--quiet")
    assert (found, out) == (code, "")
    (line,) = err.splitlines()
    assert message in line


def test_a_model_without_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    path = str(tmp_path / "config.json")
    arguments = ["--prompt", "x", "--set", "weights.source=random", "--quiet"]
    code, _, err = generate(capsys, path, *arguments)
    assert code == 2
    assert "has no tokenizer" in err


@pytest.mark.model
def test_the_demo_model(capsys: pytest.CaptureFixture[str]) -> None:
    known = KNOWN["prompts"][0]
    arguments = ["--prompt", known["prompt"], "--set", "weights.dtype=fp32", "--json"]
    arguments += ["--max-tokens", "8", "--ignore-eos"]
    _, out, _ = generate(capsys, "smollm2-135m-instruct", *arguments)
    document = json.loads(out)
    assert document["prompt_ids"] == known["prompt_ids"]
    assert document["output_ids"] == known["greedy_ids"][:8]
    assert known["greedy_text"].startswith(document["text"])
