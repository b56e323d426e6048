"""Whatever a file holds, reading it gives a checked record or one line, never anything else."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmprof.errors import InputError
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.documents import read_document, write_document
from llmprof.store.settings_file import load_settings
from tests.records import a_run_record

Result = TypeVar("Result")
one_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["bf16", "auto", "clean", "cpu", "paged"])
)
KEYS = st.sampled_from(
    [
        "model",
        "device",
        "workload",
        "batch",
        "gate",
        "metrics",
        "name",
        "passes",
        "measure",
        "kind",
        "x",
    ]
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
DAMAGE = st.sampled_from(["drop", "null", "text", "list", "negative", "nan"])


def outcome(call: Callable[[], Result]) -> Result | str:
    """The result of a call, or the line that it was refused with."""
    try:
        return call()
    except InputError as error:
        return error.line()


def settings_or_line(path: Path) -> RunConfig | None:
    result = outcome(lambda: load_settings(str(path), {}, []))
    if isinstance(result, RunConfig):
        return result
    assert result.startswith(str(path))
    return None


@one_file
@given(text=st.text(max_size=200))
def test_any_text_as_settings(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = settings_or_line(path)
    assert found is None or found.model, "what is accepted names a model"


@one_file
@given(tree=st.dictionaries(KEYS, TREES, max_size=5))
def test_any_tree_as_settings(tmp_path: Path, tree: dict[str, Any]) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    if config := settings_or_line(path):
        # What was accepted is what was written, not something made of it.
        assert config.model == tree["model"]
        assert isinstance(tree.get("workload", {}), dict | None)


@one_file
@given(text=st.text(max_size=40))
def test_any_text_as_an_option(text: str) -> None:
    result = outcome(lambda: load_settings("m", {}, [text]))
    assert isinstance(result, RunConfig) or result.startswith("--set ")


@cache
def a_run_tree() -> str:
    return a_run_record(rounds=1, grouped_rounds=1).model_dump_json(by_alias=True)


@one_file
@given(data=st.data())
def test_a_run_file_with_one_wrong_value(tmp_path: Path, data: st.DataObject) -> None:
    tree = json.loads(a_run_tree())
    node: Any = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        deeper = node[key]
        if not isinstance(deeper, dict | list) or not deeper or data.draw(st.booleans()):
            break
        node = deeper
    damage = data.draw(DAMAGE)
    if damage == "drop":
        del node[key]
    else:
        wrong: dict[str, Any] = {
            "null": None,
            "text": "?",
            "list": [],
            "negative": -1.5,
            "nan": float("nan"),
        }
        node[key] = wrong[damage]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(tree))
    result = outcome(lambda: read_document(path, RunRecord))
    if isinstance(result, str):
        assert result.startswith(f"{path} ")
        return
    # Accepted: then it can be written and read again, the same.
    record, _ = result
    write_document(path, record)
    assert read_document(path, RunRecord) == (record, ())


@one_file
@given(size=st.integers(min_value=0), flip=st.integers(min_value=0, max_value=255))
def test_a_run_file_that_was_cut_and_whose_last_byte_changed(
    tmp_path: Path, size: int, flip: int
) -> None:
    whole = a_run_tree().encode()
    cut = whole[: size % (len(whole) - 1)]
    path = tmp_path / "run.json"
    path.write_bytes(cut + bytes([flip]))
    with pytest.raises(InputError):
        read_document(path, RunRecord)
