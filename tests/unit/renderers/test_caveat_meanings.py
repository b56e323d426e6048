"""Every code that the package can raise is explained, on the page where a reader points at it."""

import ast
from collections.abc import Mapping
from pathlib import Path

import llmprof
from llmprof.renderers.caveat_meanings import MEANINGS, meaning_of
from llmprof.renderers.html_page import render_html
from tests.unit.renderers.report_factory import a_report


def raised_codes() -> set[str]:
    """The literal codes of `Caveat(code=...)`, of both arms where it is chosen, by its source text."""
    codes: set[str] = set()
    for file in Path(llmprof.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Caveat":
                codes |= {str(code) for code in _codes(node, names)}
    return codes


def _codes(call: ast.Call, names: Mapping[str, object]) -> set[object]:
    (code,) = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    if isinstance(code, ast.IfExp):
        return {arm.value for arm in (code.body, code.orelse) if isinstance(arm, ast.Constant)}
    if isinstance(code, ast.Name):  # a constant of the module, or one that another caveat has
        return {names[code.id]} if code.id in names else set()
    assert isinstance(code, ast.Constant)
    return {code.value}


def test_every_code_has_a_meaning_and_no_meaning_is_left_over() -> None:
    codes = raised_codes()
    assert len(codes) > 40
    assert codes - MEANINGS.keys() == set()
    assert MEANINGS.keys() - codes == set()


def test_meanings_are_sentences() -> None:
    for one in MEANINGS.values():
        assert all(text.endswith(".") and (text[0].isupper() or text[0] == "`") for text in one)


def test_the_page_explains_its_caveats_and_leaves_unknown_codes_alone() -> None:
    report = a_report()
    known, unknown = (report.caveats[0].model_copy(update={"code": c}) for c in ("counted", "new"))
    page = render_html(report.model_copy(update={"caveats": (known, unknown)})).decode()
    assert '<abbr title="Bytes and FLOPs follow from shapes' in page
    assert "<code>new</code>" in page
    assert meaning_of("new") == ""
