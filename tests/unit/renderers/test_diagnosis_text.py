import io

from rich.console import Console

from llmprof.renderers.diagnosis_text import render_diagnosis
from llmprof.schema.diagnosis import Check, Diagnosis
from llmprof.schema.environment import CpuInfo, Environment


def a_diagnosis(*checks: Check, model: str = "AMD EPYC 9755") -> Diagnosis:
    cpu = CpuInfo(model=model, logical_cores=8, usable_cores=8, caches=(), isa=(), governor=None)
    environment = Environment(
        device="cpu",
        device_name=model,
        cpu=cpu,
        gpu=None,
        memory_bytes=16 << 30,
        memory_available_bytes=8 << 30,
        virtualized=None,
        os="Linux-6.1",
        python="CPython 3.12.4",
        versions={},
        threads=8,
        fingerprint="0" * 12,
    )
    return Diagnosis(environment=environment, checks=checks)


def text_of(diagnosis: Diagnosis, width: int = 80, *, color: bool = False) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    render_diagnosis(diagnosis, console)
    return stream.getvalue()


CHECKS = (
    Check(name="torch", status="ok", detail="2.13.0, a CPU build"),
    Check(name="cores", status="warn", detail="2 of 8 usable", remedy="Lift the limit"),
    Check(name="demo model", status="missing", detail="not installed", remedy="pip install it"),
)


def test_the_status_is_a_word_and_the_remedy_stands_below_the_detail() -> None:
    lines = [line.rstrip() for line in text_of(a_diagnosis(*CHECKS)).splitlines()]
    assert lines == [
        "cpu: AMD EPYC 9755, 8 threads, 16.0 GiB of host memory, CPython 3.12.4,",
        "Linux-6.1",
        "",
        "ok       torch       2.13.0, a CPU build",
        "warn     cores       2 of 8 usable",
        "                     -> Lift the limit",
        "missing  demo model  not installed",
        "                     -> pip install it",
        "",
        "1 ok, 1 warn, 1 missing",
    ]


def test_colour_adds_nothing_to_the_words() -> None:
    coloured = text_of(a_diagnosis(*CHECKS), color=True)
    assert "\x1b[32mok" in coloured
    assert "\x1b[31mmissing" in coloured


def test_brackets_in_names_are_text_and_not_markup() -> None:
    check = Check(name="[bold]torch", status="ok", detail="[/red] 2.13 [x]")
    text = text_of(a_diagnosis(check, model="Xeon [engineering sample]"))
    assert "[/red] 2.13 [x]" in text
    assert "[bold]torch" in text
    assert "[engineering sample]" in text


def test_a_narrow_terminal_folds_and_loses_nothing() -> None:
    text = text_of(a_diagnosis(*CHECKS), width=40)
    assert max(len(line) for line in text.splitlines()) <= 40
    assert "-> Lift the limit" in text
