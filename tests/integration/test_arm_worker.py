"""A gate's worker in a real process: what it answers, and what becomes of its failures."""

import os
import signal
import sys
import venv
from pathlib import Path

import pytest

from llmprof.analysis.metrics import TPOT, round_values
from llmprof.errors import CapabilityError, InputError, MeasurementFailedError
from llmprof.experiments.arm_process import ArmPlan, ArmProcess
from llmprof.experiments.arm_worker import _failure
from llmprof.schema.settings import RunConfig
from tests.tiny_decoders import LLAMA, write_decoder


def a_plan(model: str, **groups: object) -> ArmPlan:
    settings = {
        "model": model,
        "weights": {"dtype": "fp32"},
        "execution": {"threads": 1},
        "workload": {"prompt_tokens": 8, "output_tokens": 4},
    }
    return ArmPlan("candidate", RunConfig.model_validate(settings | groups))


def test_a_worker_loads_takes_turns_counts_and_dies(tmp_path: Path) -> None:
    with ArmProcess(a_plan(str(write_decoder(tmp_path / "tiny", LLAMA)))) as arm:
        description = arm.open()
        assert description.model is not None
        assert description.model.num_hidden_layers == 2
        assert description.output_sha256 is not None
        assert description.output_tokens is not None
        assert [len(ids) for ids in description.output_tokens] == [4]
        rounds = [one for _ in range(2) for one in arm.turn(0.0).rounds]
        assert [one.index for one in rounds] == [rounds[0].index, rounds[0].index + 1]
        assert round_values(rounds[0])[TPOT] > 0
        counters = arm.count(ops=True).values
        assert counters["decode.ops_per_token"] > 0
        assert counters["weights.bytes"] == description.engine.weight_bytes
        os.kill(arm._process.pid, signal.SIGKILL)
        with pytest.raises(MeasurementFailedError, match="candidate: its process was killed by"):
            arm.turn(0.0)


def test_an_error_of_the_arm_keeps_its_class_and_names_the_arm() -> None:
    with (
        ArmProcess(a_plan("no-such-model-anywhere")) as arm,
        pytest.raises(InputError, match=r"^candidate: ") as caught,
    ):
        arm.open()
    assert caught.value.remedy is not None


def test_an_interpreter_that_is_none() -> None:
    plan = ArmPlan("baseline", a_plan("m").config, python="/no/such/python")
    with pytest.raises(InputError, match="cannot start /no/such/python"), ArmProcess(plan):
        pass


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """An interpreter of an environment of its own, with the same torch and llmprof on its path."""
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    here = [str(Path(__file__).parents[2]), *(one for one in sys.path if "site-packages" in one)]
    (site / "here.pth").write_text("\n".join(here) + "\n")
    return tmp_path / "env" / "bin" / "python"


def by(python: Path, model: str) -> ArmPlan:
    return ArmPlan("baseline", a_plan(model).config, python=str(python))


def test_another_environment_may_be_the_baseline(
    tmp_path: Path, other_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")  # of this interpreter, and not passed on
    with ArmProcess(by(other_python, str(write_decoder(tmp_path / "tiny", LLAMA)))) as arm:
        assert arm.open().output_sha256 is not None
        assert len(arm.turn(0.0).rounds) == 1


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "its Python has no llmprof"),
        (("__init__.py",), "an llmprof without gate workers"),
        (("__init__.py", "experiments/__init__.py"), "an llmprof without gate workers"),
    ],
)
def test_an_environment_without_a_worker_is_told_in_one_line(
    tmp_path: Path, files: tuple[str, ...], said: str
) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    for name in files:
        (site / "llmprof" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "llmprof" / name).touch()
    python = tmp_path / "env" / "bin" / "python"
    with ArmProcess(by(python, "m")) as arm, pytest.raises(CapabilityError, match=said) as caught:
        arm.open()
    assert "\n" not in caught.value.line()


def test_a_module_that_the_worker_needs_is_named() -> None:
    failure = _failure(ModuleNotFoundError("No module named 'torch'", name="torch"))
    assert (failure.error, failure.message) == ("CapabilityError", "its Python has no torch")
