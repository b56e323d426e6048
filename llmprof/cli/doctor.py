"""`llmprof doctor`: what this machine can measure."""

from llmprof.cli.options import Json
from llmprof.cli.streams import print_json, result_console


def doctor(json: Json = False) -> None:
    """Look at torch, GPU, cores, clock, memory and counters, and say what to fix.

    Takes a few seconds, runs without a GPU and without torch, and always ends with 0.
    """
    from llmprof.instruments.diagnosis import diagnose
    from llmprof.renderers.diagnosis_text import render_diagnosis

    diagnosis = diagnose()
    if json:
        print_json(diagnosis)
    else:
        render_diagnosis(diagnosis, result_console())
