from pathlib import Path

import pytest

from llmprof.errors import InputError
from llmprof.schema.settings import ExecutionMode, Pass, RunConfig, WeightDtype
from llmprof.store.settings_file import load_settings

SAMPLES = sorted((Path(__file__).parents[3] / "sample_configs").glob("*.yaml"))


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def line_for(config: Path, text: str) -> str:
    """The line that a settings file with this text is refused with, its folder taken off."""
    config.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_settings(str(config), {}, [])
    assert caught.value.exit_code == 2
    return caught.value.line().replace(f"{config.parent}/", "")


def test_an_argument_that_is_no_settings_file_is_the_model() -> None:
    assert load_settings("org/Some-Model", {}, []) == RunConfig(model="org/Some-Model")


def test_a_file_is_read_in_full(config_file: Path) -> None:
    config_file.write_text(
        "model: m\nweights: {dtype: bf16}\nmeasure:\n  warmup: 2\n  passes: [clean, tracing]\n"
        "gate:\n  tolerance: 5e-2\n  metrics:\n    - {name: decode.tpot_s.p50, tolerance: 0.1}\n"
    )
    config = load_settings(str(config_file), {}, [])
    assert config.weights.dtype is WeightDtype.BF16
    assert config.measure.warmup == 2
    assert config.measure.passes == (Pass.CLEAN, Pass.TRACING)
    assert config.gate.tolerance == 0.05
    assert config.gate.metrics[0].name == "decode.tpot_s.p50"


def test_file_then_flags_then_sets(config_file: Path) -> None:
    config_file.write_text("model: m\nworkload: {batch: 2, prompt_tokens: 64, seed: 5}\n")
    config = load_settings(
        str(config_file),
        {"workload.batch": 4, "workload.prompt_tokens": 128, "device": None},
        ["workload.batch=8", "execution.mode=eager"],
    )
    assert (config.workload.batch, config.workload.prompt_tokens, config.workload.seed) == (
        8,
        128,
        5,
    )
    assert config.device == "auto"


def test_flags_may_hold_what_python_holds() -> None:
    config = load_settings(
        None,
        {
            "model": Path("folder/model.gguf"),
            "execution.mode": ExecutionMode.COMPILED,
            "measure.passes": [Pass.CLEAN],
        },
        [],
    )
    assert config.model == "folder/model.gguf"
    assert config.execution.mode is ExecutionMode.COMPILED
    assert config.measure.passes == (Pass.CLEAN,)


def test_a_set_value_may_be_a_list_a_null_or_a_text() -> None:
    config = load_settings(
        "m", {}, ["measure.passes=[clean, grouped]", "execution.threads=null", "model=a=b"]
    )
    assert config.measure.passes == (Pass.CLEAN, Pass.GROUPED)
    assert config.execution.threads is None
    assert config.model == "a=b"


def test_a_group_whose_keys_are_all_commented_out_keeps_its_defaults(config_file: Path) -> None:
    config_file.write_text("model: m\nworkload:\n#  batch: 2\n")
    config = load_settings(str(config_file), {}, ["workload.seed=1"])
    assert (config.workload.batch, config.workload.seed) == (1, 1)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "model: m\nworkload:\n  batchs: 3\n",
            "config.yaml:3: unknown key 'workload.batchs'. Did you mean workload.batch?",
        ),
        # In the wrong place.
        (
            "model: m\nbatch: 3\n",
            "config.yaml:2: unknown key 'batch'. Did you mean workload.batch?",
        ),
        (
            "model: m\ndtype: bf16\n",
            "config.yaml:2: unknown key 'dtype'. Did you mean weights.dtype or kv_cache.dtype?",
        ),
        # Nothing is near.
        (
            "model: m\nattention: {zzz: 1}\n",
            "config.yaml:2: unknown key 'attention.zzz'. Did you mean attention.kind or attention.backend?",
        ),
        (
            "model: m\nexecution:\n  zzz: 1\n",
            "config.yaml:3: unknown key 'execution.zzz'."
            " Valid: execution.mode, execution.fused, execution.threads",
        ),
        # A typo in the one key that is needed.
        ("modell: m\n", "config.yaml:1: unknown key 'modell'. Did you mean model?"),
        (
            "model: m\ngate:\n  metrics:\n    - nam: x\n",
            "config.yaml:4: unknown key 'gate.metrics[0].nam'. Did you mean gate.metrics.name?",
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_line_and_the_nearest_one(
    config_file: Path, text: str, line: str
) -> None:
    assert line_for(config_file, text) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "model: m\nweights:\n  dtype: float8\n",
            "config.yaml:3: weights.dtype is 'float8'."
            " Expected 'as_stored', 'fp32', 'bf16' or 'fp16'",
        ),
        (
            "model: m\nkv_cache: {block_tokens: 7}\n",
            "config.yaml:2: kv_cache.block_tokens is 7. Expected 8, 16, 32, 64, 128 or 256",
        ),
        (
            "model: m\nworkload: {batch: two}\n",
            "config.yaml:2: workload.batch is 'two'. Expected a whole number",
        ),
        # Neither true nor "1" nor 1.0 is the number 1.
        (
            "model: m\nworkload: {batch: true}\n",
            "config.yaml:2: workload.batch is true. Expected a whole number",
        ),
        (
            "model: m\nworkload: {batch: '1'}\n",
            "config.yaml:2: workload.batch is '1'. Expected a whole number",
        ),
        (
            "model: m\nworkload: {batch: 1.0}\n",
            "config.yaml:2: workload.batch is 1.0. Expected a whole number",
        ),
        (
            "model: m\nworkload: {batch: 0}\n",
            "config.yaml:2: workload.batch is 0. Expected at least 1",
        ),
        (
            "model: m\nmeasure: {warmup: -1}\n",
            "config.yaml:2: measure.warmup is -1. Expected at least 0 or 'auto'",
        ),
        (
            "model: m\nmeasure:\n  passes:\n    - clean\n    - groupd\n",
            "config.yaml:5: measure.passes[1] is 'groupd'."
            " Expected 'clean', 'grouped', 'counting', 'tracing' or 'nvtx'",
        ),
        (
            "model: m\nmeasure: {passes: clean}\n",
            "config.yaml:2: measure.passes is 'clean'. Expected a list",
        ),
        (
            "model: m\nmeasure:\n  passes: [grouped]\n",
            "config.yaml:2: measure.passes must contain 'clean': every figure rests on it",
        ),
        (
            "model: m\ndevice: gpu\n",
            "config.yaml:2: device is 'gpu'. Expected auto, cpu, cuda or cuda:N",
        ),
        (
            "model: m\nmeasure: {confirm: 1}\n",
            "config.yaml:2: measure.confirm is 1. Expected true or false",
        ),
        ("model: 3\n", "config.yaml:1: model is 3. Expected text (put it in quotes)"),
        ("model: ''\n", "config.yaml:1: model is ''. Expected text that is not empty"),
        ("model: [a]\n", "config.yaml:1: model is a list. Expected text (put it in quotes)"),
        (
            "model: m\nworkload: 3\n",
            "config.yaml:2: workload is 3. Expected a mapping of keys to values",
        ),
        (
            "model: m\ngate:\n  metrics:\n    - name: x\n",
            "config.yaml:4: gate.metrics[0].tolerance is missing",
        ),
        (
            "device: cpu\n",
            "config.yaml:1: model is missing. Name a model or a settings file",
        ),
        ("", "config.yaml: is empty. Write at least 'model: NAME'"),
        ("- a\n", "config.yaml: is not a mapping of keys to values. Write at least 'model: NAME'"),
    ],
)
def test_a_wrong_value_is_named_with_its_line_and_what_is_valid(
    config_file: Path, text: str, line: str
) -> None:
    assert line_for(config_file, text) == line


def test_a_long_wrong_value_is_cut(config_file: Path) -> None:
    assert len(line_for(config_file, f"model: m\ndevice: {'x' * 5000}\n")) < 200


@pytest.mark.parametrize(
    ("flags", "sets", "line"),
    [
        (
            {},
            ["workload.batch"],
            "--set workload.batch: expected KEY=VALUE. For example workload.batch=4",
        ),
        ({}, ["=1"], "--set =1: expected KEY=VALUE. For example workload.batch=4"),
        (
            {},
            ["workload.batch=0"],
            "--set workload.batch=0: workload.batch is 0. Expected at least 1",
        ),
        (
            {},
            ["workload.btch=1"],
            "--set workload.btch=1: unknown key 'workload.btch'. Did you mean workload.batch?",
        ),
        ({}, ["gate.tolerance=.nan"], "--set gate.tolerance=.nan: .nan is not a finite number"),
        (
            {},
            ["model.name=x"],
            "MODEL: model is no group of keys."
            " It stands in the way of model.name, given by --set model.name=x",
        ),
        (
            {"workload.batch": 0},
            [],
            "command line: workload.batch is 0. Expected at least 1",
        ),
    ],
)
def test_a_wrong_option_is_named(flags: dict[str, object], sets: list[str], line: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings("m", flags, sets)
    assert caught.value.line() == line


def test_no_model_at_all() -> None:
    with pytest.raises(InputError, match="model is missing"):
        load_settings(None, {}, [])


def test_a_set_replaces_what_was_wrong_in_the_file(config_file: Path) -> None:
    config_file.write_text("model: m\nworkload: {batch: zero}\n")
    assert load_settings(str(config_file), {}, ["workload.batch=2"]).workload.batch == 2


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_every_sample_config_loads_and_opens_with_what_it_shows(sample: Path) -> None:
    assert load_settings(str(sample), {}, []).model
    assert sample.read_text(encoding="utf-8").startswith("# ")


def test_the_samples_mean_what_their_comments_say() -> None:
    named = {path.stem: load_settings(str(path), {}, []) for path in SAMPLES}
    demo = named["demo"]
    assert (demo.model, demo.weights.dtype) == ("smollm2-135m-instruct", WeightDtype.BF16)
    assert (demo.workload.prompt_tokens, demo.workload.output_tokens) == (512, 32)
    assert named["llama-3.2-1b-random"].weights.source == "random"
    assert named["long-context-synthetic"].workload.context == "synthetic"


def test_a_mapping_changes_only_what_it_names() -> None:
    config = load_settings(
        "m", {"workload.prompt_tokens": 8}, ["workload={batch: 4, lengths: {prompt: {mean: 9}}}"]
    )
    assert (config.workload.batch, config.workload.prompt_tokens) == (4, 8)
    assert config.workload.lengths.prompt.mean == 9
    assert load_settings("m", {"workload.batch": 4}, ["workload={}"]).workload.batch == 1


@pytest.mark.parametrize("name", ["\udcff\udcfe", "a\x00b", "\x1b[2J", "\x9b"])
def test_a_name_that_is_no_text_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(InputError, match=r"^MODEL: model holds a control character, or bytes"):
        load_settings(name, {}, [])


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        ("workload.batch", "9" * 39, "at most 1,000,000"),
        ("workload.prompt_tokens", "1000000001", "at most 1,000,000,000"),
        ("workload.seed", str(2**63), "at most 9,223,372,036,854,775,807"),
        ("measure.warmup", "9" * 23, "at most 1,000 or 'auto'"),
        ("workload.batch.x", "1", "a whole number"),
        ("device", "cuda:٣", "auto, cpu, cuda or cuda:N"),
        ("device", f"cuda:{'9' * 5000}", "auto, cpu, cuda or cuda:N"),
    ],
)
def test_what_no_run_can_have_is_refused(key: str, value: str, valid: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings("m", {}, [f"{key}={value}"])
    assert caught.value.message.startswith(f"--set {key}={value}: ")
    assert caught.value.remedy == f"Expected {valid}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("measure.passes=[clean, clean]", "names a pass twice"),
        ("workload.lengths.prompt={low: 9, high: 8}", "low (9) is more than high (8)"),
        ("workload.lengths.prompt.mean=4096", "mean (4096) is not from low (1) to high (2048)"),
    ],
)
def test_settings_that_contradict_each_other(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings("m", {}, [text])
    assert problem in caught.value.message
