"""A gate's result as JUnit XML, in the dialect that GitLab, Jenkins and most actions read.

FAIL is a failure, INCONCLUSIVE is skipped, UNSTABLE is an error. Figures stand in the texts, since
most readers show nothing else.
"""

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from llmprof.errors import LlmprofError
from llmprof.renderers.gate_tables import reason_text, sentence
from llmprof.renderers.metric_format import value_text
from llmprof.renderers.wording import one_line
from llmprof.schema.gate_result import GateResult, GateVerdict, Judgement

_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_-]+")


def render_junit(result: GateResult) -> bytes:
    """One test case per judgement."""
    verdicts = [one.verdict for one in result.judgements]
    root, suite = _suites(
        tests=len(verdicts),
        failures=verdicts.count(GateVerdict.FAIL),
        errors=verdicts.count(GateVerdict.UNSTABLE),
        skipped=verdicts.count(GateVerdict.INCONCLUSIVE),
        time_s=result.elapsed_s,
    )
    suite.set("timestamp", f"{result.created:%Y-%m-%dT%H:%M:%S}")
    properties = SubElement(suite, "properties")
    for name, value in (("device", result.device), ("schema", result.schema_)):
        SubElement(properties, "property", name=name, value=one_line(value))
    share_s = result.elapsed_s / max(len(verdicts), 1)
    for judgement in result.judgements:
        _case(suite, result, judgement, share_s)
    return _bytes(root)


def render_junit_error(error: LlmprofError) -> bytes:
    """A gate that measured nothing: one test case with the error, so that it is not missed."""
    root, suite = _suites(tests=1, failures=0, errors=1, skipped=0, time_s=0.0)
    case = SubElement(suite, "testcase", classname="llmprof.gate", name="gate", time="0")
    told = SubElement(case, "error", type=type(error).__name__, message=one_line(error.line()))
    told.text = one_line(error.line())
    return _bytes(root)


def _suites(
    *, tests: int, failures: int, errors: int, skipped: int, time_s: float
) -> tuple[Element, Element]:
    counts = {
        "tests": str(tests),
        "failures": str(failures),
        "errors": str(errors),
        "skipped": str(skipped),
        "time": f"{time_s:.1f}",
    }
    root = Element("testsuites", {"name": "llmprof", **counts})
    return root, SubElement(root, "testsuite", {"name": "gate", **counts})


def _case(suite: Element, result: GateResult, one: Judgement, time_s: float) -> None:
    title = ".".join(_NOT_A_WORD.sub("_", word) for word in one_line(result.title).split())
    case = SubElement(
        suite,
        "testcase",
        classname=f"llmprof.{title}",
        name=f"{one.metric.name} budget" if one.tolerance is None else one.metric.name,
        time=f"{time_s:.1f}",
    )
    message = sentence(one)
    figures = (
        f"baseline {value_text(one.metric, one.baseline)}, "
        f"candidate {value_text(one.metric, one.candidate)}; {one_line(reason_text(one))}"
    )
    if one.verdict is GateVerdict.FAIL:
        SubElement(case, "failure", type="regression", message=message).text = figures
    elif one.verdict is GateVerdict.UNSTABLE:
        SubElement(case, "error", type="unstable", message=message).text = figures
    elif one.verdict is GateVerdict.INCONCLUSIVE:
        SubElement(
            case, "skipped", message=f"inconclusive: {message}; {one_line(reason_text(one))}"
        )


def _bytes(root: Element) -> bytes:
    indent(root)
    xml: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"
