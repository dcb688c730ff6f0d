"""Which long proofs run which modules: ``python -m tests.mutants.near`` writes it down, by default into ``.ci/near.json``.

A few cases of each proof run once in a copy of the package that notes the modules whose functions run (``reach``), in the processes
that a test starts, too. ``.ci/run`` takes from the file which proofs a change needs, and how long they take. With names of files or
tests only these run, and the file keeps what it has of the others.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.mutants.reach import VARIABLE
from tests.mutants.running import PACKAGE, TOP, copies, environment, with_notes

CASES = "NEAR_CASES"
"""The variable that says how many cases of each proof run, at equal distances."""
WHERE = TOP / ".ci/near.json"
LEFT_OUT = {
    "tests/integrations": "they run in environments of their own, which have another copy of the package",
    "tests/mutants/test_mutants.py": "it is this",
    "tests/test_house.py": "they read the source",
    "tests/test_speed.py": "they measure",
}
NOTES = '''"""Which modules ran: for this process in memory, for those that a test starts in a file of the test."""

import os
from hashlib import sha256

seen: set[int] = set()
_noted: set[tuple[str, int]] = set()


def reached(module: int) -> None:
    seen.add(module)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and (test, module) not in _noted:
        _noted.add((test, module))
        note(test, b"%d\\n" % module)


def note(test: str, line: bytes) -> None:
    try:
        file = os.open(f"{FOLDER}/{sha256(test.encode()).hexdigest()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(file, line)
        os.close(file)
    except OSError:
        pass


FOLDER = '''
_counted: dict[str, int] = {}
_begun: dict[str, float] = {}


def function_of(test: str) -> str:
    """The id of a test without its case."""
    return test.partition("[")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As a plugin: only a few cases of each test."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(function_of(item.nodeid), []).append(item)
    _counted.update({test: len(found) for test, found in cases.items()})
    wanted = int(os.environ[CASES])
    kept = {found[round((k + 0.5) / wanted * len(found) - 0.5)] for found in cases.values() for k in range(wanted)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _begun[item.nodeid] = _processor_seconds()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    from transcript_store._reached import note  # type: ignore[import-not-found]

    note(item.nodeid, b"took %f\n" % (_processor_seconds() - _begun[item.nodeid]))


def _processor_seconds() -> float:
    """Of this process and of those that it has waited for: who else is at work does not change it."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _counted:
        (Path(os.environ[VARIABLE]).with_suffix(".cases")).write_text(json.dumps(_counted))


def beginnings(source: bytes) -> Iterator[int]:
    """Where the first statement of each function begins, if it has a line of its own."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            for first in body[:1]:
                line = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))])
                start = lines[line - 1] + first.col_offset
                if not source[lines[line - 1] : start].strip():
                    yield start


def measure(tests: Sequence[str], wanted: int, workers: int) -> dict[str, Any]:
    """Run them; of each proof the number of its cases, the processor's seconds of all of them, and the modules that it runs.

    Of one that was skipped here, or did not run to its end, the last two are None.
    """
    modules = sorted(
        path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "rescue.py"
    )  # it stands alone
    with copies(1) as (copy,), tempfile.TemporaryDirectory() as folder:
        for name in ("benchmarks", "examples", ".ci"):
            shutil.copytree(TOP / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in TOP.glob("*.md"):
            shutil.copy2(path, copy / path.name)
        Path(folder).chmod(0o777)  # tests start processes of other users, too
        (copy / "transcript_store/_reached.py").write_text(f"{NOTES}{folder!r}\n")
        for number, module in enumerate(modules):
            path = copy / "transcript_store" / module
            source = path.read_bytes()
            changed = with_notes([(start, number) for start in beginnings(source)], source)
            compile(changed, path, "exec")  # a module that is no Python would look like one that no test runs
            path.write_bytes(changed)
        found = copy / "reached.json"
        options = ["-q", "-p", "tests.mutants.reach", "-p", "tests.mutants.near", "-p", "no:cacheprovider", "--tb=line"]
        options += [
            f"-n{workers}",
            "-m",
            "long or root",
            "--timeout=1800",
            *(f"--deselect={path}" for path in LEFT_OUT),
        ]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, *(tests or ["tests"])],
            cwd=copy,
            env={**environment(copy), VARIABLE: str(found), CASES: str(wanted)},
            check=False,  # a test that counts the calls of a process counts those of the notes, too
        )
        cases = json.loads(found.with_suffix(".cases").read_text())
        seconds: dict[str, list[float]] = {}
        ran: dict[str, set[int]] = {}
        for test, seen in json.loads(found.read_text()).items():
            notes = Path(folder, sha256(test.encode()).hexdigest())
            lines = notes.read_text().splitlines() if notes.exists() else []
            took = [float(line.split()[1]) for line in lines if line.startswith("took")]
            numbers = {int(line) for line in lines if line.isdigit()}.union(seen["statements"])
            if took and numbers:
                ran.setdefault(function_of(test), set()).update(numbers)
                seconds.setdefault(function_of(test), []).extend(took)
    proofs = {
        test: [count, round(fmean(seconds[test]) * count, 1), sorted(ran[test])] if test in ran else [count, None, None]
        for test, count in sorted(cases.items())
    }
    return {"modules": [module.as_posix() for module in modules], "proofs": proofs}


def merge(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Two measurements as one: of a proof that both have the later one, with the modules that there are now."""
    numbers = {module: number for number, module in enumerate(now["modules"])}

    def renumbered(ran: list[int] | None) -> list[int] | None:
        return ran and sorted(numbers[name] for n in ran if (name := before["modules"][n]) in numbers)

    kept = {test: [cases, seconds, renumbered(ran)] for test, (cases, seconds, ran) in before["proofs"].items()}
    return {"modules": now["modules"], "proofs": dict(sorted({**kept, **now["proofs"]}.items()))}


def _in_lines(measured: dict[str, Any]) -> str:
    """JSON, a line for each module and each proof: a change shows what has changed."""
    modules = ",\n".join(map(json.dumps, measured["modules"]))
    proofs = ",\n".join(f"{json.dumps(test)}: {json.dumps(proof)}" for test, proof in measured["proofs"].items())
    return f'{{"modules": [\n{modules}\n],\n"proofs": {{\n{proofs}\n}}}}\n'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.near", description=__doc__)
    parser.add_argument("tests", nargs="*", metavar="TEST", help="only these files or tests (default: all)")
    parser.add_argument("--to", type=Path, default=WHERE, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--cases", type=int, default=3, help="of each proof (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="at a time (default: %(default)s)")
    given = parser.parse_args()
    measured = measure(given.tests, given.cases, given.workers)
    if given.tests and given.to.exists():
        measured = merge(json.loads(given.to.read_text(encoding="utf-8")), measured)
    given.to.write_text(_in_lines(measured))
