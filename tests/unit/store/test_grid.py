from pathlib import Path

import pytest

from llmprof.errors import InputError
from llmprof.schema.settings import GridValue
from llmprof.store.grid import axis_values, parse_axis
from llmprof.store.settings_file import changed_settings, load_settings, settings_with_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,4,16", (1, 4, 16)),
        ("512-32768*2", (512, 1024, 2048, 4096, 8192, 16384, 32768)),
        ("1-10*3", (1, 3, 9)),
        ("0-90+30", (0, 30, 60, 90)),
        ("3-5", (3, 4, 5)),
        ("7", (7,)),
        ("1, 8-32*2, 100", (1, 8, 16, 32, 100)),
    ],
)
def test_numbers_and_ranges(text: str, values: tuple[int, ...]) -> None:
    assert parse_axis(f"workload.batch={text}") == ("workload.batch", values)


@pytest.mark.parametrize(
    ("key", "text", "values"),
    [
        ("weights.quantization", "none,int8", ("none", "int8")),
        ("workload.arrival_rate_per_s", "0.5,1e1", (0.5, 10.0)),
        ("kv_cache.memory_bytes", "null,1024", (None, 1024)),
        ("model", "llama-3.2-1b,a/b-7b", ("llama-3.2-1b", "a/b-7b")),
    ],
)
def test_words_are_read_as_in_a_file(key: str, text: str, values: tuple[GridValue, ...]) -> None:
    assert parse_axis(f"{key}={text}") == (key, values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workload.batch", "expected KEY=VALUES"),
        ("=1,2", "expected KEY=VALUES"),
        ("workload.batch=", "expected KEY=VALUES"),
        ("workload.bacth=1,2", "Did you mean workload.batch?"),
        ("workload=1", "workload is a group of keys"),
        ("gate.tolerance=0.1", "changes nothing that a sweep measures"),
        ("sweep.interleave=2", "changes nothing that a sweep measures"),
        ("workload.batch=8-4", "the range 8-4 is empty"),
        ("workload.batch=1-8*1", "never ends"),
        ("workload.batch=0-8*2", "never ends"),
        ("workload.batch=1-8+0", "never ends"),
        ("workload.batch=1-1000000", "more than 1000 values"),
        ("workload.batch=1,2,1", "the value 1 twice"),
        ("workload.batch=1,,2", "a value is missing"),
        ("workload.batch=[1]", "a number, a word or null"),
    ],
)
def test_bad_input_is_one_line_that_names_the_option(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings("m", {}, [], [text])
    line = caught.value.line()
    assert f"--grid {text}: " in line
    assert says in line
    assert "\n" not in line


def test_true_is_no_one() -> None:
    assert axis_values("weights.symmetric", [True, False], place="p") == (True, False)


def test_a_file_has_axes_in_the_short_form_and_the_command_line_replaces_one(
    tmp_path: Path,
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "model: m\nsweep:\n  grid:\n    workload.batch: 1-4*2\n    attention.kind: [flash]\n"
        "    workload.seed: 3\n"
    )
    config = load_settings(str(file), {}, [], ["workload.batch=8,16"])
    assert config.sweep.grid == {
        "workload.batch": (8, 16),
        "attention.kind": ("flash",),
        "workload.seed": (3,),
    }


def test_a_bad_axis_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model: m\nsweep:\n  grid:\n    workload.batch: 4-1\n")
    with pytest.raises(InputError, match=r"c\.yaml:4: the range 4-1 is empty"):
        load_settings(str(file), {}, [])


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="given twice"):
        load_settings("m", {}, [], ["workload.batch=1", "workload.batch=2"])


def test_changed_settings_are_checked_like_a_file() -> None:
    config = load_settings("m", {}, ["workload.prompt_tokens=64"])
    changed = settings_with_values(
        config, {"workload.batch": 4, "kv_cache.layout": "none"}, place="g"
    )
    assert (changed.workload.batch, changed.workload.prompt_tokens) == (4, 64)
    assert changed.kv_cache.layout == "none"
    with pytest.raises(InputError, match=r"^g: workload.batch is 'x'"):
        settings_with_values(config, {"workload.batch": "x"}, place="g")


def test_a_wrong_change_is_blamed_on_the_option_that_gave_it() -> None:
    config = load_settings("m", {}, [])
    for text in ("foo=1", "weights.quantization=", ","):
        with pytest.raises(InputError, match=f"^--confirm {text}: "):
            changed_settings(config, [text], option="--confirm")
        with pytest.raises(InputError, match=f"^--set {text}: "):
            changed_settings(config, [text])
