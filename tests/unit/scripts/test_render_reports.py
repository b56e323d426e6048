"""The gallery: one page per document, opening with its question, and an index of them all."""

from pathlib import Path

import pytest

from llmprof.errors import InputError
from llmprof.schema.comparison import SettingChange
from llmprof.store.documents import write_document
from scripts.render_reports import render_folder
from tests.records import a_run_record
from tests.sweeps import a_sweep, some_metrics
from tests.unit.renderers.documents import a_comparison, a_live_comparison

QUESTIONS = "grid: Which <batch> is best?\none: Where does it go?\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_document(tmp_path / "one.run.json", a_run_record())
    sweep = a_sweep({"workload.batch": (1, 4)}, [some_metrics(batch=1), some_metrics(batch=4)])
    write_document(tmp_path / "grid.sweep.json", sweep)
    (tmp_path / "questions.yaml").write_text(QUESTIONS)
    return tmp_path


def test_every_document_has_a_page_and_a_line_that_open_with_the_question(folder: Path) -> None:
    written = render_folder(folder)
    assert [path.name for path in written] == ["grid.html", "one.html", "README.md"]
    assert "Which &lt;batch&gt; is best?" in (folder / "grid.html").read_text()
    assert "Where does it go?" in (folder / "one.html").read_text()
    index = (folder / "README.md").read_text()
    assert index.index("is best?") < index.index("grid.html") < index.index("Where does it go?")
    assert "<batch>" not in index


def test_the_same_documents_give_the_same_bytes(folder: Path) -> None:
    first = [path.read_bytes() for path in render_folder(folder)]
    assert [path.read_bytes() for path in render_folder(folder)] == first


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("one: Why?\n", "grid has no question"),
        (QUESTIONS + "gone: What?\n", "gone has a question and no document"),
        ("- a list\n", "one line per document"),
    ],
)
def test_what_does_not_fit_together_is_refused(folder: Path, questions: str, message: str) -> None:
    (folder / "questions.yaml").write_text(questions)
    with pytest.raises(InputError, match=message):
        render_folder(folder)
    assert not (folder / "README.md").exists()


def test_the_command_of_a_comparison_is_one_that_makes_it(folder: Path) -> None:
    """Saved runs are named; a live one by its settings: comparing its runs gives another document."""
    change = SettingChange(key="weights.quantization", baseline="none", candidate="int8")
    live = a_live_comparison().model_copy(update={"settings": (change,)})
    saved = a_comparison()
    write_document(folder / "live.compare.json", live)
    write_document(folder / "saved.compare.json", saved)
    (folder / "questions.yaml").write_text(f"{QUESTIONS}live: What?\nsaved: What?\n")
    render_folder(folder)
    index = (folder / "README.md").read_text()
    arms = "--base weights.quantization=none --cand weights.quantization=int8"
    assert f"`llmprof compare {live.baseline.model} {arms}`" in index
    ids = saved.baseline.run_ids[0], saved.candidate.run_ids[0]
    assert f"`llmprof compare {ids[0]} {ids[1]}`" in index
