import os
import signal

import pytest

from llmprof.cli.interrupts import signals_interrupt

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
