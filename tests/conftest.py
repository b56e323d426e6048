"""What holds for every test."""

import gc
import os

from hypothesis import HealthCheck, settings

# A busy machine is slow, and says nothing about the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Read where torch loads its OpenMP runtime, here and in every process that a test starts. The tests of two
# workers share the cores: threads that spin for work, as they do by default, take them from each other.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_YOUNG_OBJECTS = 50_000


def pytest_configure() -> None:
    """Look for cycles seldom: modules and collected tests are half a million objects, none of them waste.

    To walk through them again and again was a quarter of the whole suite's time.
    """
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on what a test leaves behind is found, and what was there before is left alone."""
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 50)
    gc.enable()
