"""The suite says the same everywhere. Where a tool is missing, what needs it is skipped and says so, all else runs.

Found by a newcomer: without libfuse `import mfusepy` raises OSError, not ImportError, and the whole run ended at its
collection. The test of that failed itself where other tools are missing, too, or the user is not root.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis.internal.conjecture import providers

import tests.crash
from tests.kit.cases import for_each

MODULES = ["fuse", "forgetful", "failing_disk", "test_failing_disk", "test_forgetful_disk"]


@pytest.mark.parametrize(
    "fault", ["raise OSError('Unable to find libfuse')", "raise ModuleNotFoundError('No module named mfusepy')"]
)
def test_without_libfuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Both files of tests are imported, and what mounts is skipped with the reason."""
    (tmp_path / "mfusepy.py").write_text(fault)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("TRANSCRIPT_STORE_ONLY_PATH", raising=False)
    with patch.dict(sys.modules), patch.dict(vars(tests.crash)):
        for name in ["mfusepy", *(f"tests.crash.{module}" for module in MODULES)]:
            sys.modules.pop(name, None)
        imported = {module: import_module(f"tests.crash.{module}") for module in MODULES}
        with (
            pytest.raises(pytest.skip.Exception, match=r"needs libfuse and mfusepy: (Unable|No module)"),
            imported["failing_disk"].failing_volume("ext4"),
        ):
            pass


def test_each_case_of_a_loop_runs_and_the_one_that_fails_is_named() -> None:
    """As a parameter does, it leaves the test its fixtures."""
    seen = []

    @for_each("number, text", [(1, "a"), (2, "b"), (3, "c")])
    def smaller_than_two(number: int, text: str, fixture: str) -> None:
        seen.append((number, text, fixture))
        assert number < 2

    assert [*inspect.signature(smaller_than_two).parameters] == ["fixture"]
    with pytest.raises(AssertionError) as failed:
        smaller_than_two(fixture="x")
    assert seen == [(1, "a", "x"), (2, "b", "x")]
    assert failed.value.__notes__ == ["in the case number=2, text='b'"]


def test_what_is_drawn_depends_on_no_module_that_is_imported(pytestconfig: pytest.Config) -> None:
    """Hypothesis collects the constants of imported modules: other ones in each worker, order of tests and folder of the clone."""
    has_long = "long" in pytestconfig.option.markexpr.replace("not long", "")
    assert bool(len(providers._get_local_constants())) is has_long  # the long proofs keep them
