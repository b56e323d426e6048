"""Everything that only a GPU can show, in one command of at most eight minutes.

    python3 scripts/gpu_check.py [--device cuda:0] [--model llama-3.1-8b] [--budget 480]
                                 [--out gpu-check] [--results folder]

It needs this checkout, a Python with torch, and the wheels that `make gpu-wheels` left in
.gpu-wheels; nothing is downloaded. `--device cpu` with a small model is a dry run of the same paths.

It may be ended at any moment: whatever was found until then lies in `--out` as files of its own
(`found`, `runs`, `predictions`, `logs`), and after every part the summary is written again. Some hundred
files are too many where a machine gives back a few: `--results` (or $OUT) has the archive of them all,
the summary and a report, written again after every part too.
"""

import argparse
import importlib
import importlib.metadata
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.gpu.carry import KERNELS, SITE, install_missing  # noqa: E402
from scripts.gpu.job import Job, in_one_line, open_folder  # noqa: E402
from scripts.gpu.lost_device import LOST, LostDeviceError  # noqa: E402
from scripts.gpu.parts import BUDGET_S, SUMMARY_S, log_of_failure, parts, run_part  # noqa: E402
from scripts.gpu.schedule import (  # noqa: E402
    Outcome,
    Part,
    run_parts,
    run_process,
    run_until_ended,
)


def main() -> int:
    options = _options()
    begin_s = time.perf_counter()
    folder = Path(options.out).resolve()
    if options.part:
        job = Job(options.device, options.model, folder, options.seconds, begin_s)
        return _run_one(options.part, job)
    # as an interrupt: no part may outlive this process, and hold the GPU
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    open_folder(folder)
    _say(_made_ready(folder))
    budget_s = options.budget - SUMMARY_S * (options.device != "cpu")
    ended: list[Outcome] = []

    def told(outcome: Outcome) -> None:
        _say(f"{outcome.name}: {outcome.status}, {outcome.seconds:.0f} s")
        ended.append(outcome)
        _write_results(options, folder, ended)

    try:
        run_parts(
            parts(options.device),
            budget_s - (time.perf_counter() - begin_s),
            lambda part, seconds: _in_processes(part, seconds, options, folder),
            told=told,
        )
    finally:
        sys.stdout.write(_write_results(options, folder, ended))
    return 0  # whatever its figures say


def _made_ready(folder: Path) -> str:
    """Carried packages, and where children find them and leave what they find; in words."""
    site = ROOT / SITE
    sys.path.insert(1, str(site))
    words = install_missing(ROOT, site)
    importlib.invalidate_caches()
    before = os.environ.get("PYTHONPATH", "")
    paths = [str(ROOT), str(site), *filter(None, before.split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["LLMPROF_DIR"] = str(folder)
    os.environ.setdefault("LLMPROF_CACHE_DIR", str(folder / "cache"))
    # not among the results, which travel back; all parts share it
    os.environ.setdefault("TRITON_CACHE_DIR", str(ROOT / KERNELS))
    return words


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Everything that only a GPU can show.")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for everything")
    parser.add_argument("--out", default="gpu-check", help="folder to work in")
    parser.add_argument(
        "--results",
        default=os.environ.get("OUT") or None,
        help="folder that has the archive, the summary and a report alone; by default $OUT, or --out",
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_processes(
    part: Part, seconds: float, options: argparse.Namespace, folder: Path
) -> tuple[int | None, str]:
    """One, and others that go on where it lost the GPU.

    A part learns of its time a little earlier than it is ended, so that it can finish by itself.
    """
    command = [sys.executable, str(Path(__file__).resolve()), "--part", part.name]
    command += ["--device", options.device, "--model", options.model, "--out", str(folder)]
    log = folder / "logs" / f"{part.name}.txt"
    return run_until_ended(
        lambda left_s: run_process(
            [*command, "--seconds", f"{0.9 * left_s:.1f}"], left_s, log, os.environ
        ),
        seconds,
    )


def _run_one(name: str, job: Job) -> int:
    os.chdir(ROOT)
    try:
        return run_part(name, job)
    except LostDeviceError as error:
        log_of_failure(error)
        return LOST
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


def _write_results(options: argparse.Namespace, folder: Path, ended: Sequence[Outcome]) -> str:
    """Archive, summary and report of what there is; either may fail, and the next part runs."""
    from scripts.gpu.summary import archive

    try:
        text = _summarise(options, folder, ended)
    except Exception as error:  # noqa: BLE001 (whatever it is, the findings are in the archive)
        text = f"There is no summary: {in_one_line(error)}\n"
        _say(text.strip())
    try:
        _say(f"written: {archive(folder, Path(options.results or folder).resolve())}")
    except OSError as error:
        _say(f"there is no archive, all is in {folder}: {error}")
    return text


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
