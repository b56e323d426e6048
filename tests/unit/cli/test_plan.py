"""`llmprof plan`, from the command line to files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmprof.cli.app import execute
from llmprof.cli.quantities import part_bytes, rate_bytes_per_s, size_bytes, whole_numbers
from llmprof.devices.search import datasheet_named
from llmprof.errors import InputError
from llmprof.renderers.plan_formats import RENDERERS, render_plan
from llmprof.schema.plan import Plan

PLAN = ["plan", "llama-3.1-8b", "--device-name", "H100 SXM", "--price-per-hour", "2.5"]


def test_the_answer_stands_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*PLAN, "--context", "8192", "--batch", "4"]) == 0
    out = capsys.readouterr().out
    assert "56 sequences of 8,192 tokens fit" in out
    assert "4 sequences of 8,192 tokens fit" in out
    assert "(predicted)" in out
    assert "Assumed: Speed is the least time" in out
    assert "…" not in out


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*PLAN, "--json", "--set", "kv_cache.dtype=int8"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "llmprof.plan/1"
    assert document["kv_dtype"] == "int8"
    assert document["memory"]["reserve_bytes"] == round(0.1 * 80 * 2**30)
    assert document["rates"]["source"] == "datasheet"
    assert document["verification"] is None


def test_every_format_is_written(tmp_path: Path) -> None:
    suffixes = (".html", ".md", ".json", ".png", ".svg", ".pdf")
    files = [tmp_path / f"plan{suffix}" for suffix in suffixes]
    outputs = [part for path in files for part in ("-o", str(path))]
    assert execute([*PLAN, "--context", "8192,32768", *outputs]) == 0
    texts = [path.read_bytes() for path in files]
    assert texts[3].startswith(b"\x89PNG")
    assert b"Frontier" in texts[0]
    assert b"8,192" in texts[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "llama-3.1-8b"], "a plan needs a size"),
        (["plan", "llama-3.1-8b", "--memory", "24"], "is no size"),
        (["plan", "llama-3.1-8b", "--memory", "24GB", "--price-per-hour", "1"], "needs a speed"),
        (["plan", "llama-3.1-8b", "--memory", "24GB", "--context", "8k"], "no whole number"),
        (["plan", "llama-3.1-8b", "--memory", "24GB", "--set", "device=cpu"], "does not use"),
        (
            ["plan", "llama-3.1-8b", "--memory", "24GB", "--set", "kv_cache.memory_bytes=1000000"],
            "does not use",
        ),
        (["plan", "llama-3.1-8b", "--memory", "24GB", "--device", "cpu"], "is about --verify"),
        (["plan", "llama-3.1-8b", "--memory", "24GB", "--vary", "context"], "is about --verify"),
        (["plan", "llama-3.1-8b", "--memory", "24GB", "--bandwidth", "9GB"], "is no rate"),
        (["plan", "llama-3.1-8b", "--device-name", "H100"], "may be any of"),
        (["plan", "llama-3.1-8b", "--device-name", "B9000"], "does not know"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_workspace_that_is_asked_for_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*PLAN, "--set", "attention.backend=flashinfer"]) == 0
    assert "Activations include 128 MiB of workspace" in capsys.readouterr().out


def test_too_large_a_model_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["plan", "llama-3.1-70b", "--memory", "24GB"]) == 0
    assert "It does not fit" in capsys.readouterr().out


def test_neither_torch_nor_matplotlib_is_imported() -> None:
    code = (
        "import sys; from llmprof.cli.app import execute; "
        "execute(['plan', 'llama-3.1-8b', '--memory', '24GB', '--json']); "
        "sys.exit(bool({'torch', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"llmprof.plan/1" in done.stdout


def test_quantities() -> None:
    assert size_bytes("--memory", "24GB") == 24_000_000_000
    assert size_bytes("--memory", "1.5 GiB") == 3 * 2**29
    assert rate_bytes_per_s("--bandwidth", "3.35TB/s") == 3.35e12
    assert part_bytes("--reserve", "10%", 1000) == 100
    assert part_bytes("--reserve", "0", 1000) == 0
    assert whole_numbers("--context", ["8192,131_072", "1"], 10**6) == (8192, 131_072, 1)
    with pytest.raises(InputError, match="leaves nothing"):
        part_bytes("--reserve", "100%", 1000)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("H100 SXM", "H100 SXM5 80GB"),
        ("h100 pcie", "H100 PCIe 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("L4", "L4"),
    ],
)
def test_devices_by_what_people_type(typed: str, name: str) -> None:
    assert datasheet_named(typed).name == name


@pytest.mark.parametrize(
    ("typed", "near", "far"),
    [
        ("H1000", "H100 PCIe", "MI100"),
        ("RTX 4091", "RTX 4090", "RTX 3090"),
        ("xyz", "--memory", "B200"),
    ],
)
def test_a_misspelt_device_is_answered_with_those_it_may_be(
    typed: str, near: str, far: str
) -> None:
    with pytest.raises(InputError) as refused:
        datasheet_named(typed)
    assert near in refused.value.line()
    assert f"{far}," not in f"{refused.value.line()},"


@pytest.mark.parametrize("suffix", RENDERERS)
def test_the_same_plan_gives_the_same_bytes(
    suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two plans made from the same words, not one rendered twice."""
    plans = []
    for _ in range(2):
        assert execute([*PLAN, "--context", "8192,32768", "--json"]) == 0
        plans.append(Plan.model_validate_json(capsys.readouterr().out))
    assert render_plan(plans[0], suffix) == render_plan(plans[1], suffix)


def test_a_budget_of_the_cache_in_a_settings_file_is_refused_and_can_be_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ignored it would look like a limit that the plan keeps."""
    settings = tmp_path / "c.yaml"
    settings.write_text("model: llama-3.1-8b\nkv_cache: {memory_bytes: 1073741824}\n")
    words = ["plan", str(settings), "--memory", "24GB", "--context", "8192"]
    assert execute(words) == 2
    error = capsys.readouterr().err
    assert "kv_cache.memory_bytes is 1.00 GiB, and a plan gives the cache all" in error
    assert "Add --set kv_cache.memory_bytes=null" in error
    assert execute([*words, "--set", "kv_cache.memory_bytes=null"]) == 0
    assert execute([*words, "--set", "kv_cache.memory_bytes=5"]) == 2
