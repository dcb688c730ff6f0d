"""Each framework in its own environment: our tests there, and the framework's own tests with our class in place of theirs.

``TRANSCRIPT_STORE_INTEGRATIONS`` names the folder with the environments; ``.ci/run`` makes them. What of theirs cannot pass stands
in ``impossible.py`` with a reason, and has to fail: a test that begins to pass is seen, as is a new one that fails.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.integrations.environments import FRAMEWORKS, ROOT, Framework
from tests.integrations.impossible import IMPOSSIBLE, UNDECIDED
from tests.integrations.theirs import THEIRS

Note = Callable[[str, object], None]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

with_tests = pytest.mark.parametrize(
    "framework", [each for each in FRAMEWORKS if each.has_tests], ids=lambda framework: framework.key
)
each_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.key)


def environment(framework: Framework) -> Path:
    """The folder of its environment."""
    made = Path(os.environ.get("TRANSCRIPT_STORE_INTEGRATIONS", "/nowhere")) / framework.key
    if not (made / "bin" / "pytest").exists():
        pytest.skip(
            f"needs {framework.key}: python -m tests.integrations.environments FOLDER; export TRANSCRIPT_STORE_INTEGRATIONS=FOLDER"
        )
    return made


def run(place: Path, where: Path, report: Path, *arguments: str, path: str = "", **more: str) -> dict[str, str]:
    """Run pytest in an environment; returns how each test ended, by its name."""
    options = ["-q", "-p", "no:cacheprovider", "--timeout=120", f"--junitxml={report}", "-o", "junit_family=xunit1"]
    # That a test may not be skipped is no rule in there: how many are skipped is counted here, by version.
    left_out = ("PYTEST", "COV", "TRANSCRIPT_STORE_REQUIRE_ALL")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    done = subprocess.run(
        [place / "bin" / "python", "-m", "pytest", *options, *arguments],
        cwd=where,
        # Their tests make folders that nothing removes: more than five hundred in a run.
        env={**environ, "PYTHONPATH": path, "OPENAI_API_KEY": "", "TMPDIR": str(report.parent), **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    return ended(report)


def ended(report: Path) -> dict[str, str]:
    """How each test ended, by its file and name: passed, skipped or failed (an error is a failure)."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('file') or case.get('classname')}::{case.get('name')}"
        kinds = {child.tag for child in case}
        found[name] = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
    return found


@each_framework
def test_ours(framework: Framework, tmp_path: Path) -> None:
    """Our contract, the examples of the page, and SIGKILL at random."""
    place = environment(framework)
    arguments = ["-p", "no:asyncio", "-p", "no:xdist", f"tests/integrations/{framework.folder}"]
    found = run(place, ROOT, tmp_path / "report.xml", *arguments)
    theirs = THEIRS[framework.key]
    assert Counter(found.values()) == Counter(passed=theirs.ours, skipped=theirs.ours_skipped), {
        name: how for name, how in found.items() if how != "passed"
    }


@with_tests
def test_theirs(framework: Framework, tmp_path: Path, record_property: Note) -> None:
    """Each of their tests that uses such a store passes with ours, except those that are listed with a reason."""
    run_theirs(framework, tmp_path)
    record_property(f"tests of {framework.name} that passed with our store", THEIRS[framework.name].passed)


def test_theirs_on_a_backend(tmp_path: Path, record_property: Note) -> None:
    """The same tests of OpenAI's Agents SDK pass when our session is on a backend, and no others fail."""
    (framework,) = (each for each in FRAMEWORKS if each.name == "openai-agents")
    run_theirs(framework, tmp_path, TRANSCRIPT_STORE_ON_A_BACKEND="1")
    record_property(f"tests of {framework.name} that passed with our store on a backend", THEIRS[framework.name].passed)


def run_theirs(framework: Framework, tmp_path: Path, **environ: str) -> None:
    """Run their tests with ours, and compare what failed with what is listed."""
    place, theirs = environment(framework), THEIRS[framework.name]
    plugins = Path(__file__).parent / "plugins"
    found = run(
        place,
        place / "theirs",
        tmp_path / "report.xml",
        *("-p", f"theirs_{framework.folder}", "-n", "2", *theirs.files),
        *("-k", " and ".join(f"not {name}" for name in UNDECIDED[framework.name])),
        path=str(plugins),
        **environ,
    )
    failed = {name for name, how in found.items() if how == "failed"}
    expected = set(IMPOSSIBLE[framework.name])
    assert failed - expected == set(), "these failed, and are not listed"
    assert expected - failed == set(), "these are listed, and passed or did not run"
    counts = Counter(found.values())
    assert (counts["passed"], counts["skipped"]) == (theirs.passed, theirs.skipped)
