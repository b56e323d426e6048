from pathlib import Path

from llmprof.instruments.peak_memory import peak_memory_bytes


def test_the_high_water_mark_of_the_resident_set(tmp_path: Path) -> None:
    status = tmp_path / "proc/self/status"
    status.parent.mkdir(parents=True)
    status.write_text("Name:\tpython\nVmPeak:\t  900 kB\nVmHWM:\t  123 kB\nVmRSS:\t  100 kB\n")
    assert peak_memory_bytes("cpu", tmp_path) == 123 * 1024


def test_unknown_where_the_system_does_not_tell(tmp_path: Path) -> None:
    assert peak_memory_bytes("cpu", tmp_path) is None
