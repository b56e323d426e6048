"""What became of each GPU test, written down as it ends: the part may be cut off at any moment."""

from typing import Any

from scripts.gpu.job import Job


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
        self._outcomes: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = items[self._number :: self._of]
        self._collected = len(items)
        self._write()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Once for set-up, the test itself and what follows: the worst of the three counts."""
        if report.when != "call" and report.passed:
            return
        if self._outcomes.get(report.nodeid) != "failed":
            self._outcomes[report.nodeid] = report.outcome
        self._write()

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
        }
        self._job.found(self._name, found)
