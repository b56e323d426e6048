import os
import signal
from pathlib import Path

import pytest

from llmprof.cli.app import execute
from llmprof.cli.interrupts import signals_interrupt
from tests.records import a_run_record

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", NUMBERS)
def test_each_signal_interrupts_and_its_handler_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", NUMBERS)
def test_a_held_signal_waits_until_it_is_released(number: signal.Signals) -> None:
    with signals_interrupt() as interrupts:
        interrupts.hold()
        os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            interrupts.release()


def test_without_a_signal_nothing_waits() -> None:
    with signals_interrupt() as interrupts:
        interrupts.hold()
        interrupts.release()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_is_ignored_from_outside_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_switch_is_confirmed_ends_with_130_and_says_where_the_run_is(
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLMPROF_DIR", raising=False)
    record = a_run_record()
    saved = tmp_path / "the-run.json"
    monkeypatch.setattr("llmprof.cli.run._measured", lambda *_, **__: (record, saved))
    monkeypatch.setattr("llmprof.experiments.confirm.compare_switch", interrupted)
    before = signal.signal(number, lambda *_: None)  # nothing else would say that it came
    try:
        code = execute(
            [
                "run",
                "smollm2-135m",
                "--random-weights",
                "--confirm",
                "weights.quantization=int8",
                "-q",
            ]
        )
    finally:
        signal.signal(number, before)
    out, err = capsys.readouterr()
    assert code == 130
    assert "interrupted: the run is saved in the-run.json" in err
    # By its own name: the runs of the pairs are the last ones then.
    assert f"report {record.id[-8:]} -o report.html" in out
