"""What became of each GPU test, written down as it ends: the part may be cut off at any moment."""

from typing import Any

import pytest

from scripts.gpu.job import Job, read_found
from scripts.gpu.lost_device import LOST, is_lost


class TestOutcomes:
    """A plugin of pytest, of one of the processes that share the tests out."""

    __test__ = False

    def __init__(self, job: Job, name: str = "tests", *, number: int = 0, of: int = 1) -> None:
        """This process has every `of`-th test, from `number` on; `name` of what it finds."""
        self._job = job
        self._name = name
        self._number = number
        self._of = of
        self._collected = 0
        ended = read_found(job.folder).get(name, {}).get("ended", {})
        self._outcomes: dict[str, str] = dict(ended)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Those that ended before the GPU was lost to an earlier process do not run again."""
        own = items[self._number :: self._of]
        items[:] = [one for one in own if one.nodeid not in self._outcomes]
        self._collected = len(own)
        self._write()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Once for set-up, the test itself and what follows: the worst of the three counts."""
        if report.when != "call" and report.passed:
            return
        if self._outcomes.get(report.nodeid) != "failed":
            self._outcomes[report.nodeid] = report.outcome
        self._write()
        if report.outcome == "failed" and is_lost(self._job.device):
            pytest.exit(f"the GPU was lost at {report.nodeid}", returncode=LOST)

    def _write(self) -> None:
        by_outcome = {
            outcome: [name for name, one in self._outcomes.items() if one == outcome]
            for outcome in ("passed", "failed", "skipped")
        }
        found = {
            "collected": self._collected,
            "passed": len(by_outcome["passed"]),
            "failed": by_outcome["failed"],
            "skipped": by_outcome["skipped"],
            "ended": self._outcomes,
        }
        self._job.found(self._name, found)
