import pytest

from llmprof import errors
from llmprof.errors import InputError, LlmprofError

DOCUMENTED = {
    "InputError": 2,
    "NotComparableError": 4,
    "UnstableMachineError": 5,
    "MeasurementFailedError": 6,
    "CapabilityError": 7,
    "DoesNotFitError": 7,
    "LlmprofError": 70,
}


def test_each_error_has_its_documented_code_and_none_has_that_of_a_regression() -> None:
    found = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, LlmprofError)
    }
    assert found == DOCUMENTED


@pytest.mark.parametrize(
    ("message", "remedy", "line"),
    [
        ("no file", None, "no file"),
        ("no file", "Give one", "no file. Give one"),
        ("a\n  b\tc", "d\r\ne", "a b c. d e"),
    ],
)
def test_a_line_is_one_line(message: str, remedy: str | None, line: str) -> None:
    assert InputError(message, remedy=remedy).line() == line
