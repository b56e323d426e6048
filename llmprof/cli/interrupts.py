"""Signals that ask a measurement to stop: raised while it runs, held back while it is saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C, the end of a batch job's time, a closed terminal. Windows has no SIGHUP."""


class Interrupts:
    """Whether a signal raises KeyboardInterrupt at once, or waits for `release`."""

    def __init__(self) -> None:
        self._held = False
        self._waiting = False

    def hold(self) -> None:
        """From here on, keep signals back: what is measured must be saved first."""
        self._held = True

    def release(self) -> None:
        """Raise KeyboardInterrupt if a signal has come since `hold`, and at the next one."""
        self._held = False
        if self._waiting:
            raise KeyboardInterrupt

    def __call__(self, number: int, frame: object) -> None:
        """The handler of a signal."""
        if not self._held:
            raise KeyboardInterrupt
        self._waiting = True


@contextmanager
def signals_interrupt() -> Iterator[Interrupts]:
    """Let each of the signals raise KeyboardInterrupt in the block, until it holds them.

    A signal that is ignored from outside (nohup) stays ignored.
    """
    interrupts = Interrupts()
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # only it may set handlers
        numbers = [signal.Signals[name] for name in _NAMES if hasattr(signal, name)]
        heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, interrupts) for number in heard}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
