"""A pytest plugin for a package that notes what is run in it: which test runs which statements, and how long it takes.

It writes a JSON object, from the id of each test that passed to its seconds and the numbers of its statements, into the
file that the environment variable ``REACHED`` names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "REACHED"
NOTES = '''"""What was run since somebody looked."""

seen: set[int] = set()
reached = seen.add
'''
"""The module that the package gets."""
_tests: dict[str, dict[str, Any]] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test is to do its own work: what an earlier one has kept for it would hide what it runs."""
    from transcript_store._reached import seen  # type: ignore[import-not-found]

    for name, module in [*sys.modules.items()]:
        if name.startswith("tests."):
            for kept in vars(module).values():
                if callable(getattr(kept, "cache_clear", None)):
                    kept.cache_clear()
    seen.clear()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    from transcript_store._reached import seen

    item.user_properties.append((VARIABLE, sorted(seen)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The reports of all workers come together in one process."""
    test = _tests.setdefault(report.nodeid, {"seconds": 0.0, "passed": True, "statements": []})
    test["seconds"] += report.duration
    test["passed"] &= report.passed
    if report.when == "teardown":
        test["statements"] = dict(report.user_properties).get(VARIABLE, [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        Path(os.environ[VARIABLE]).write_text(json.dumps(_tests))
