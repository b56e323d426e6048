"""A prediction as page, Markdown, JSON and figure."""

import json
import re

import pytest

from llmprof import units
from llmprof.errors import InputError
from llmprof.renderers.prediction_documents import (
    RENDERERS,
    check_prediction_suffix,
    prediction_html,
    render_prediction_file,
)
from llmprof.renderers.prediction_words import headline, tier_why
from llmprof.schema.prediction import Prediction
from tests.unit.renderers.documents import a_prediction


def page() -> str:
    return prediction_html(a_prediction(), question="What does int4 give?").decode()


def test_the_page_tells_all_of_it() -> None:
    text, found = page(), a_prediction()
    for phase in found.phases:
        for value in (phase.step_s.point, phase.step_s.low, phase.step_s.high):
            assert units.seconds(value) in text
        assert phase.naive.byte_ratio_step_s is not None
        assert units.seconds(phase.naive.byte_ratio_step_s) in text
        assert units.seconds(phase.naive.roofline_step_s) in text
    for words in (
        "What does int4 give?",
        "weights.quantization none → int4",
        "tier B: a run",
        "nobody measured what they take then: ",
        "sequences of this length fit",
        *found.assumptions,
    ):
        assert words in text.replace("&#39;", "'")


def test_both_bars_and_both_marks_are_drawn() -> None:
    text, phases = page(), a_prediction().phases
    assert text.count(">before<") + text.count(">before\n") >= len(phases)
    for phase in phases:
        assert f'id="predicted-{phase.phase.value}-weights"' in text
        assert f'data-mark="predicted-{phase.phase.value}-weights"' in text
        assert re.search(rf">{phase.phase.value}, [\d.,]+ .FLOP/s<", text)


def test_parts_of_a_bar_sum_to_its_step() -> None:
    for phase in a_prediction().phases:
        assert sum(one.predicted_s for one in phase.parts) == pytest.approx(phase.step_s.point)
        assert phase.base_step_s is not None
        before = sum(one.base_s or 0.0 for one in phase.parts)
        assert before == pytest.approx(phase.base_step_s.point)


def test_a_mark_stands_where_its_bytes_and_time_put_it() -> None:
    """int4 moves fewer bytes for the same FLOPs: to the right, and as much up as it is faster."""
    decode = next(one for one in a_prediction().phases if one.phase.value == "decode")
    before, after = decode.base_place, decode.place
    assert before is not None
    assert after is not None
    assert before.flops == after.flops
    weights = 134_515_008 * 2
    assert weights <= before.bytes_required <= 1.1 * weights
    assert 0.25 <= after.bytes_required / before.bytes_required <= 0.45


@pytest.mark.parametrize("suffix", RENDERERS)
def test_equal_predictions_give_equal_bytes(suffix: str) -> None:
    data = render_prediction_file(a_prediction(), suffix)
    assert data
    assert data == render_prediction_file(a_prediction(), suffix)


def test_json_is_read_back() -> None:
    data = render_prediction_file(a_prediction(), ".json")
    assert Prediction.model_validate_json(data, strict=True) == a_prediction()
    assert json.loads(data)["schema"] == "llmprof.prediction/1"


def test_what_does_not_fit_is_a_page_without_figures() -> None:
    found = a_prediction()
    capacity = found.capacity.model_copy(update={"fits": False, "largest_batch": 0})
    nothing = found.model_copy(update={"capacity": capacity, "phases": ()})
    text = prediction_html(nothing).decode()
    assert "DOES NOT FIT" in text
    assert "<figure" not in text
    assert headline(nothing).startswith("DOES NOT FIT")
    for suffix in RENDERERS:
        assert render_prediction_file(nothing, suffix)


def test_older_files_without_places_are_drawn() -> None:
    found = a_prediction()
    bare = tuple(one.model_copy(update={"place": None, "base_place": None}) for one in found.phases)
    text = prediction_html(found.model_copy(update={"phases": bare})).decode()
    assert "no phase could be placed" in text


def test_only_a_missing_benchmark_is_called_missing() -> None:
    found = a_prediction()
    known = tuple(
        one.model_copy(
            update={
                "groups": tuple(
                    group.model_copy(update={"is_measured": True}) for group in one.groups
                )
            }
        )
        for one in found.phases
    )
    assert tier_why(found)
    assert not tier_why(found.model_copy(update={"phases": known}))


def test_an_unknown_suffix() -> None:
    with pytest.raises(InputError) as refused:
        check_prediction_suffix(".docx")
    assert "Known suffixes: .html" in refused.value.line()
