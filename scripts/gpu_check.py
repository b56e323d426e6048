"""Everything that only a GPU can show, in one command of at most eight minutes.

    OUT=folder python3 scripts/gpu_check.py [--device cuda:0] [--model llama-3.1-8b] [--budget 480]

It needs this checkout, a Python with torch, and the wheels that `make gpu-wheels` left in
.gpu-wheels; nothing is downloaded. `--device cpu` with a small model is a dry run of the same paths.

It may be ended at any moment: whatever was found until then lies in the folder as files of its own
(`found`, `runs`, `predictions`, `logs`), and the summary is written again after every part.
"""

import argparse
import importlib
import importlib.metadata
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.gpu.carry import KERNELS, SITE, install_missing  # noqa: E402
from scripts.gpu.job import Job  # noqa: E402
from scripts.gpu.parts import BUDGET_S, SUMMARY_S, log_of_failure, parts, run_part  # noqa: E402
from scripts.gpu.schedule import Outcome, Part, run_parts, run_process  # noqa: E402


def main() -> int:
    options = _options()
    begin_s = time.perf_counter()
    folder = Path(options.out).resolve()
    if options.part:
        job = Job(options.device, options.model, folder, options.seconds, begin_s)
        return _run_one(options.part, job)
    for name in ("logs", "runs", "found"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    site = ROOT / SITE
    sys.path.insert(1, str(site))
    _say(install_missing(ROOT, site))
    importlib.invalidate_caches()
    os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(site)))
    os.environ["LLMPROF_DIR"] = str(folder)
    os.environ.setdefault("LLMPROF_CACHE_DIR", str(folder / "cache"))
    # not among the results, which travel back; all parts share it
    os.environ.setdefault("TRITON_CACHE_DIR", str(ROOT / KERNELS))
    budget_s = options.budget - SUMMARY_S * (options.device != "cpu")
    ended: list[Outcome] = []

    def told(outcome: Outcome) -> None:
        _say(f"{outcome.name}: {outcome.status}, {outcome.seconds:.0f} s")
        ended.append(outcome)
        _summarise(options, folder, ended)

    run_parts(
        parts(options.device),
        budget_s - (time.perf_counter() - begin_s),
        lambda part, seconds: _in_a_process(part, seconds, options, folder),
        told=told,
    )
    return _finish(options, folder, ended)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Everything that only a GPU can show.")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for everything")
    parser.add_argument("--out", default=os.environ.get("OUT") or "gpu-check")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(
    part: Part, seconds: float, options: argparse.Namespace, folder: Path
) -> tuple[int | None, str]:
    """A part learns of its time a little earlier than it is ended, so that it can finish by itself."""
    command = [sys.executable, str(Path(__file__).resolve()), "--part", part.name]
    command += ["--device", options.device, "--model", options.model, "--out", str(folder)]
    command += ["--seconds", f"{0.9 * seconds:.1f}"]
    return run_process(command, seconds, folder / "logs" / f"{part.name}.txt", os.environ)


def _run_one(name: str, job: Job) -> int:
    os.chdir(ROOT)
    try:
        return run_part(name, job)
    except Exception as error:  # noqa: BLE001 (whatever it is, the next part must run)
        import traceback

        traceback.print_exc()
        log_of_failure(error)
        return 1


def _summarise(options: argparse.Namespace, folder: Path, ended: Sequence[Outcome]) -> str:
    """Of what has ended so far; its text. It asks no GPU: this process holds nothing on one."""
    from llmprof import __version__
    from scripts.gpu.job import read_found
    from scripts.gpu.summary import device_name, write_summary

    on_cpu = options.device == "cpu"
    about = {
        "version": __version__,
        "torch": importlib.metadata.version("torch"),
        "device": "cpu" if on_cpu else device_name(read_found(folder)) or options.device,
        "model": Path(options.model).name,
        "dry_run": on_cpu,
    }
    return write_summary(folder, about, ended)


def _finish(options: argparse.Namespace, folder: Path, ended: Sequence[Outcome]) -> int:
    """0 where an archive was written, whatever its figures say."""
    from scripts.gpu.summary import archive

    sys.stdout.write(_summarise(options, folder, ended))
    _say(f"written: {archive(folder)}")
    return 0


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
