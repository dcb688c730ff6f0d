"""Which of the long proofs `.ci/run` takes: none that a change comes near is left out unseen, whatever has changed.

A run that takes as long as everything takes is run by nobody before a submission, and then a submission is lost to it.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.kit.cases import for_each
from tests.mutants.near import merge

TOP = Path(__file__).parent.parent
if not (TOP / ".ci").exists():
    pytest.skip("needs .ci", allow_module_level=True)


@pytest.fixture(scope="module")
def whole() -> Any:
    """The module that has the steps."""
    sys.path.insert(0, str(TOP / ".ci"))  # they import each other by name
    try:
        return _loaded("__main__")
    finally:
        sys.path.remove(str(TOP / ".ci"))


def _loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"ci_{name}", TOP / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


chosen, machine = _loaded("chosen"), _loaded("machine")
LOG, VIEW = "transcript_store/_log/log.py", "transcript_store/view/page.py"
PARTS = {*chosen.PARTS.values(), "release", "site"}
NOTHING: dict[str, set[str]] = {part: set() for part in PARTS}


def proof(name: str, *modules: str, cases: int = 16, seconds: float = 160.0) -> Any:
    return chosen.Proof(name, cases, seconds, frozenset(modules))


NEAR = proof("tests/test_damage.py::test_near", LOG)
FAR = proof("tests/test_damage.py::test_far", "transcript_store/keys.py")
BROWSER = proof("tests/view/test_browser.py::test_page", VIEW, LOG)


def choose(changed: dict[str, set[str] | None], seconds: float = 10_000.0) -> Any:
    return chosen.choose([NEAR, FAR, BROWSER], {**NOTHING, **changed}, seconds, TOP)


def test_proofs_near_a_change_run_fully_and_others_in_part() -> None:
    """A module that it runs has changed. What needs a browser waits for a change of its own folders."""
    assert choose({"proofs": {LOG}, "browser": {LOG}}).shares == {NEAR.id: 1, FAR.id: chosen.REST, BROWSER.id: 0}
    assert choose({"browser": {VIEW}}).shares == {NEAR.id: chosen.REST, FAR.id: chosen.REST, BROWSER.id: 1}


def test_a_change_to_what_a_proof_is_made_of_is_near() -> None:
    """Its own file, and a helper that a helper of it imports."""
    assert "tests/kit/scratch.py" in chosen.needs("tests/test_damage.py", TOP)
    for file in ("tests/test_damage.py", "tests/kit/scratch.py"):
        assert choose({"proofs": {file}}).shares[FAR.id] == 1
    assert choose({"proofs": {"README.md"}}).shares[FAR.id] == chosen.REST


def test_nothing_is_known_so_everything_is_near() -> None:
    """A part that has never run, or ran at a commit that this history does not have."""
    assert choose(dict.fromkeys(PARTS)).shares == {NEAR.id: 1, FAR.id: 1, BROWSER.id: 1}


@for_each("seconds", [1.0, 100.0, 200.0, 479.0])
def test_too_much_is_spread_over_the_next_commits_and_said(seconds: float) -> None:
    """As many commits as it takes run all of it, and no run takes more than a share of everything."""
    taken = choose(dict.fromkeys(PARTS), seconds)
    assert 1 < taken.every <= chosen.REST
    assert set(taken.shares.values()) == {taken.every}
    assert taken.seconds == pytest.approx(480 / taken.every)
    assert taken.seconds <= max(seconds, 480 / chosen.REST)
    assert taken.seconds + taken.deferred == pytest.approx(480)


@pytest.mark.long
def test_of_a_sampled_test_each_nth_case_is_plain_and_all_others_are_long() -> None:
    """No case is gone, and none is both."""

    def collected(marks: str) -> list[str]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--co",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-m",
            marks,
        ]
        done = subprocess.run([*command, "tests/test_tail.py"], cwd=TOP, capture_output=True, text=True, check=False)
        return [line for line in done.stdout.splitlines() if "::test_it_tells_what_a_whole_load_tells[" in line]

    everything, plain, unsampled = collected(""), collected("not long and not root"), collected("long and unsampled")
    assert plain in [everything[first::3] for first in range(3)]
    assert sorted(plain + unsampled) == sorted(everything)


@pytest.mark.long
def test_as_many_runs_as_a_share_has_take_every_case(tmp_path: Path) -> None:
    """conftest.py takes other cases with each number; of a test, a file and a folder that are named as many as the nearest says."""

    def collected(*options: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-q", "--co", "-p", "no:cacheprovider", "-p", "no:xdist", *options]
        files = ("tests/test_limits_to_the_byte.py", "tests/test_marks.py", "tests/crash/test_listing.py")
        done = subprocess.run([*command, "-m", "", *files], cwd=TOP, capture_output=True, text=True, check=False)
        return [line for line in done.stdout.splitlines() if "::" in line]

    everything = collected()
    shares = tmp_path / "shares.json"
    shares.write_text('{"tests": 1, "tests/crash": 0, "tests/test_marks.py": 3}')
    runs = [collected("--share", f"{number}/16", f"--shares={shares}") for number in (1000, 1001, 1002)]
    of_three = Counter(line for lines in runs for line in lines)
    for line in everything:
        assert of_three[line] == {"tests/test_marks.py": 1, "tests/crash/test_listing.py": 0}.get(
            line.partition("::")[0], 3
        )
    only = tmp_path / "only"
    only.write_text(f"{everything[0]}\ntests/test_marks.py\n")
    assert collected(f"--only={only}") == [
        line for line in everything if line == everything[0] or line.startswith("tests/test_marks.py")
    ]


def test_every_long_proof_belongs_to_a_part() -> None:
    """And each part that `.ci/run` asks for is one that `.ci/whole` has."""
    for path in TOP.glob("tests/**/test_*.py"):
        chosen.part_of(path.relative_to(TOP).as_posix())
    listed = subprocess.run(
        [sys.executable, TOP / ".ci", "whole", "--list"], cwd=TOP, check=True, stdout=subprocess.PIPE, text=True
    )
    assert {*listed.stdout.split()} >= {*PARTS, *chosen.AREAS}


def test_the_folders_that_the_lists_name_are_there() -> None:
    """A folder that moves takes its place in the lists with it."""
    for place in itertools.chain(chosen.PARTS, chosen.OTHER_PYTHONS, *chosen.AREAS.values()):
        assert (TOP / place).exists(), place


def fail() -> None:
    machine.run(sys.executable, "-c", "raise SystemExit(3)")


def refuse() -> None:
    raise machine.StopError("install what is missing")


def mistake() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("action", "why"), [(fail, "exit code 3"), (refuse, "install what is missing"), (mistake, "ZeroDivisionError")]
)
def test_the_table_is_printed_when_a_step_fails_and_names_it(
    action: Callable[[], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The steps after it do not run: a command failed, a check did not hold, or the steps themselves are wrong."""
    ran: list[str] = []
    steps = [
        ("first", "one", lambda: ran.append("first")),
        ("second", "two", action),
        ("third", "three", lambda: ran.append("third")),
    ]
    assert machine.Times(".ci/run").all(steps) == 1
    assert ran == ["first"]
    seen = capsys.readouterr()
    lines = seen.out.partition("=== .ci/run\n")[2].splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["step", "first", "second", "all"]
    assert "in the step second" in lines[-1]
    assert why in seen.out + seen.err


def test_what_was_not_measured_is_near_every_change_and_takes_what_others_take(tmp_path: Path) -> None:
    """It was skipped where the others were measured, or is newer, or has a new name; it is not left out for that, and it has its share."""
    near = {
        "modules": ["_log/log.py"],
        "proofs": {FAR.id: [4, 8.0, [0]], NEAR.id: [3, None, None], "gone": [9, 9.0, [0]]},
    }
    (tmp_path / "near.json").write_text(json.dumps(near))
    far, unknown, new = chosen.read_near(tmp_path / "near.json", {FAR.id: 8, NEAR.id: 3, BROWSER.id: 1})
    assert (far.modules, far.seconds) == ({LOG}, 16.0)
    for proof, seconds in ((unknown, 6.0), (new, 2.0)):
        assert (proof.modules, proof.seconds) == (None, seconds)
        assert [chosen.is_near(proof, changed, ()) for changed in ({"README.md"}, None, set())] == [True, True, False]


def test_every_proof_that_was_measured_is_there() -> None:
    """A file, a test or a module that is renamed takes its line in .ci/near.json with it."""
    near = json.loads((TOP / ".ci/near.json").read_text(encoding="utf-8"))
    assert [module for module in near["modules"] if not (TOP / "transcript_store" / module).exists()] == []
    tests = [test.split("::") for test in near["proofs"]]
    texts = {file: (TOP / file).read_text(encoding="utf-8") for file, *_ in tests}
    assert [test for test in tests if f"def {test[-1]}(" not in texts[test[0]]] == []


def test_a_second_measurement_replaces_what_it_measured() -> None:
    """The first one's other proofs stay, with the numbers that their modules have now; a module that is gone is left out."""
    before = {
        "modules": ["a.py", "b.py", "c.py"],
        "proofs": {"one": [1, 1.0, [0, 1, 2]], "two": [2, 2.0, [1]], "three": [1, None, None]},
    }
    now = {"modules": ["c.py", "a.py"], "proofs": {"two": [3, 9.0, [1]]}}
    proofs = {"one": [1, 1.0, [0, 1]], "three": [1, None, None], "two": [3, 9.0, [1]]}
    assert merge(before, now) == {"modules": ["c.py", "a.py"], "proofs": proofs}


def test_a_part_that_was_interrupted_or_failed_continues_where_it_was(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What passed does not run again, also after a mend; the part is written down with the oldest commit of its pieces."""
    ran: list[str] = []
    history = ["a"]
    monkeypatch.setattr(whole, "WHOLE", tmp_path / "whole.json")
    monkeypatch.setattr(whole, "UNFINISHED", tmp_path / "build" / "whole.json")
    monkeypatch.setattr(whole, "said", lambda *words: history[-1] if "rev-parse" in words else "")
    monkeypatch.setattr(whole, "is_known", lambda one: one in history)
    monkeypatch.setattr(whole, "commits_since", lambda one: history[history.index(one) + 1 :])
    monkeypatch.setattr(
        whole, "changed_since", lambda one: set() if one == history[-1] else {"README.md"} if one else None
    )

    class OfThree:
        def __init__(self, error: type[BaseException] = Exception, fails: str = "") -> None:
            self.times, self.error, self.fails = machine.Times(".ci/whole"), error, fails

        def piece(self, name: str) -> None:
            if name == self.fails:
                raise self.error
            ran.append(name)

        def parts(self) -> dict[str, list[tuple[str, str, Callable[[], None]]]]:
            return {"crash": [(name, "", partial(self.piece, name)) for name in ("1/3", "2/3", "3/3")]}

    def written() -> dict[str, Any]:
        found = tmp_path / "whole.json"
        return json.loads(found.read_text()) if found.exists() else {}

    with pytest.raises(KeyboardInterrupt):
        whole.run_whole(OfThree(KeyboardInterrupt, "2/3"), ())
    assert (ran, written()) == (["1/3"], {})
    assert whole.run_whole(OfThree(AssertionError, "2/3"), ()) == 1
    assert (ran, written()) == (["1/3", "3/3"], {})
    history.append("b")
    assert whole.run_whole(OfThree(), ()) == 0
    assert ran == ["1/3", "3/3", "2/3"]
    assert written() == {"crash": {"commit": "a", "minutes": 0.0}}
    for names, more in (((), 3), ((), 0), (("crash",), 3)):  # not that of "b"; it is; named, it runs in any case
        ran.clear()
        assert whole.run_whole(OfThree(), names) == 0
        assert len(ran) == more
    assert written() == {"crash": {"commit": "b", "minutes": 0.0}}
    history[:] = ["c"]
    assert whole.run_whole(OfThree(AssertionError, "1/3"), ()) == 1
    history[:] = ["d"]  # a history without "c"
    ran.clear()
    assert whole.run_whole(OfThree(), ()) == 0
    assert len(ran) == 3


def test_the_recipes_run_also_if_their_part_continues_with_them(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shared folder is found for the piece before them, which may have passed in an earlier run."""
    ran: list[str] = []
    monkeypatch.setattr(whole, "run", lambda *words, **_: ran.extend(map(str, words)))
    monkeypatch.setattr(whole.Ci, "tools", {})
    environ: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", environ)
    for variables, command in ({}, []), ({"TRANSCRIPT_STORE_SHARED": ""}, ["python", "-m", "tests.programs.recipes"]):
        ci = whole.Ci(tmp_path, machine.Times(".ci/whole"))
        monkeypatch.setattr(ci, "packages", partial(environ.update, variables))
        pieces = {name: action for name, _, action in ci.parts()["programs"]}
        pieces["made"]()
        assert ran[:3] == command
        assert len(ci.times.notes) == (0 if variables else 1)
