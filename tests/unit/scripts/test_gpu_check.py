"""The check as a whole: what it leaves where, whatever fails in it or ends it."""

import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from scripts import gpu_check
from scripts.gpu import summary
from scripts.gpu.job import Job, read_found
from scripts.gpu.schedule import Part

ROOT = Path(__file__).parents[3]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two parts that only leave a finding each; the names of those that ran."""
    ran: list[str] = []

    def leave_a_finding(part: Part, seconds: float, options: object, folder: Path) -> object:
        job = Job("cpu", "m", folder, seconds, time.perf_counter())
        job.found(part.name, {"part": part.name})
        ran.append(part.name)
        return 0, ""

    for name in ("PYTHONPATH", "LLMPROF_DIR", "LLMPROF_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "set"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(gpu_check, "install_missing", lambda *_: "nothing had to be installed")
    monkeypatch.setattr(gpu_check, "_in_processes", leave_a_finding)
    monkeypatch.setattr(
        gpu_check, "parts", lambda device: (Part("one", 9.0, 1.0), Part("two", 9.0, 1.0))
    )
    return ran


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--device", "cpu", *words])
    return gpu_check.main()


def test_what_travels_back_is_a_few_files(
    check: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that gives back eight files must not choose among a hundred."""
    monkeypatch.setenv("OUT", str(tmp_path / "back"))
    assert run(monkeypatch, "--out", str(tmp_path / "work")) == 0
    assert sorted(one.name for one in (tmp_path / "back").rglob("*")) == [
        "gpu-check.tar.gz",
        "summary.json",
        "summary.md",
    ]
    with tarfile.open(tmp_path / "back" / "gpu-check.tar.gz") as tar:
        assert {"found/one.json", "found/two.json", "summary.md"} <= set(tar.getnames())


def test_the_archive_is_there_after_every_part(
    check: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended_at_the_second(part: Part, *_: object) -> object:
        if part.name == "two":
            raise KeyboardInterrupt
        return 0, ""

    monkeypatch.setattr(gpu_check, "_in_processes", ended_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, "--out", str(tmp_path), "--results", str(tmp_path / "back"))
    assert "- one: done" in (tmp_path / "back" / "summary.md").read_text()
    assert (tmp_path / "back" / "gpu-check.tar.gz").exists()


def test_a_summary_that_fails_costs_no_part(
    check: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def figures(found: object) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(summary, "figures", figures)
    assert run(monkeypatch, "--out", str(tmp_path)) == 0
    assert check == ["one", "two"]
    assert "There is no summary: ZeroDivisionError: float division" in capsys.readouterr().out
    with tarfile.open(tmp_path / "gpu-check.tar.gz") as tar:
        assert "found/two.json" in tar.getnames()


def test_an_earlier_check_is_not_taken_for_this_one(
    check: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job("cpu", "m", tmp_path, 1.0, 0.0).found("cell-base", {"run": "an old one"})
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "an-old-one.json").touch()
    run(monkeypatch, "--out", str(tmp_path))
    assert set(read_found(tmp_path)) == {"one", "two"}
    assert (tmp_path / "earlier" / "an-old-one.json").exists()
    with tarfile.open(tmp_path / "gpu-check.tar.gz") as tar:
        assert not any("an-old-one" in name for name in tar.getnames())


def test_packages_that_the_machine_finds_are_found_by_the_parts_too(
    check: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/opt/one", "/opt/two"]))
    run(monkeypatch, "--out", str(tmp_path))
    assert os.environ["PYTHONPATH"].split(os.pathsep)[-2:] == ["/opt/one", "/opt/two"]


def test_no_part_outlives_a_check_that_is_ended(tmp_path: Path) -> None:
    """It could hold the GPU."""
    code = (
        "import os, sys, time; from pathlib import Path; from scripts import gpu_check;"
        "from scripts.gpu.schedule import Part, run_process;"
        "gpu_check.install_missing = lambda *_: '';"
        "gpu_check.parts = lambda device: (Part('one', 60.0, 1.0),);"
        "sleep = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)';"
        "gpu_check._in_processes = lambda part, seconds, options, folder: run_process("
        "[sys.executable, '-c', sleep], seconds, folder / 'log', os.environ);"
        f"sys.argv = ['gpu_check.py', '--device', 'cpu', '--out', {str(tmp_path)!r}];"
        "sys.exit(gpu_check.main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = tmp_path / "log"
    while not (log.exists() and log.read_text().strip()):
        assert ended.poll() is None
        time.sleep(0.05)
    part = int(log.read_text())
    ended.terminate()
    assert ended.wait(timeout=60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(part, 0)
    assert (tmp_path / "gpu-check.tar.gz").exists()


def test_packages_of_our_names_that_are_installed_do_not_win(tmp_path: Path) -> None:
    """Some projects install their `tests` or `scripts` beside everything else."""
    for name in ("tests", "scripts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    code = "import scripts.gpu.job, tests.fakes; print(scripts.__file__); print(tests.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [str(ROOT / name / "__init__.py") for name in ("scripts", "tests")]
    assert found.stdout.splitlines() == ours, found.stderr


def test_a_plugin_that_the_machine_has_for_another_pytest_is_left_alone(tmp_path: Path) -> None:
    site, about = tmp_path / "site", tmp_path / "site" / "old_plugin-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "old_plugin.py").write_text("raise ImportError('made for another pytest')")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: old-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pytest11]\nold_plugin = old_plugin\n")
    test = tmp_path / "test_one.py"
    test.write_text("import pytest\n@pytest.mark.gpu\ndef test_one(): pass\n")
    code = (
        "import sys; from pathlib import Path; from scripts.gpu.job import Job;"
        "from scripts.gpu.side_by_side import run_share;"
        f"job = Job('cpu', 'm', Path({str(tmp_path)!r}), 60.0, 0.0);"
        f"sys.exit(run_share(job, 'tests', ({str(test)!r},)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert read_found(tmp_path)["tests"]["passed"] == 1
