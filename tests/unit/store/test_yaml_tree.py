from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmprof.errors import InputError
from llmprof.store.yaml_tree import MAX_FILE_BYTES, Value, parse_yaml, read_yaml

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**30), max_value=10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
)
KEYS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda key: key not in ("y", "n"))
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(TREES)
def test_reads_back_what_a_yaml_writer_wrote(tree: Value) -> None:
    assert parse_yaml(yaml.safe_dump(tree, allow_unicode=True), where="here").value == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-2", 0.05),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("+7", 7),
        ("010", 10),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("'12'", "12"),
        ("''", ""),
        ("", None),
        ("~", None),
        ("True", True),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = parse_yaml(text, where="here").value
    assert found == value
    assert type(found) is type(value)


def test_lines_of_keys_and_entries(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a:\n  b: 1\n  c:\n    - x\n    - y\n")
    tree = read_yaml(file)
    assert tree.lines["a", "b"] == 2
    assert tree.lines["a", "c", 1] == 5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", ":1: not valid YAML"),
        ("a: 1\na: 2", ":2: key 'a' is given twice"),
        ("a: &x 1\nb: *x\nc: 3\n", ":2: aliases"),
        ("a: &x {k: 1}\nb:\n  <<: *x\n", ":3: aliases"),
        ("a: !!python/object/apply:os.system [ls]", ":1: tag"),
        ("a: !!int '3'", ":1: tag"),
        ("a: 1\nb: .inf", ":2: .inf is not a finite number"),
        ("a: -.INF", ":1: -.INF is not a finite number"),
        ("a: 1e999", ":1: 1e999 is too large"),
        ("[a]: 1", ":1: a key must be plain text"),
        ("a: 1\n---\nb: 2", ":2: not valid YAML: expected a single document"),
        ("a: b\n\tc: 1", ":2: not valid YAML"),
        ("[" * 100_000, ":1: nested more than 16 levels deep"),
        ("a: \x07", ": holds a character that YAML does not allow"),
    ],
)
def test_what_a_settings_file_does_not_need_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_yaml(file)
    assert f"{file}{problem}" in caught.value.line()


def test_a_tagged_collection_is_refused() -> None:
    with pytest.raises(InputError, match="tag"):
        parse_yaml("a: !!set {b}", where="here")


def test_files_that_cannot_be_settings(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"model: \xff\xfe\n")
    for path, problem in (
        (large, "larger than 1 MiB"),
        (binary, "not UTF-8 text"),
        (tmp_path, "is not a file"),
        (tmp_path / "absent.yaml", "does not exist"),
    ):
        with pytest.raises(InputError, match=problem):
            read_yaml(path)
