"""A pytest that has collected its tests lets chosen ones at a mutant, each mutant in a fork of itself.

Without it most of the time went into pytest's beginning, anew for each mutant. In a fork the functions that the mutant is in get its
code where they are, and whoever holds them has the mutant. A process that a test starts reads the file, so it has none: what
survives here meets the tests again with its file changed (tests/mutants/running.py).

The module is both ends: `Forks` asks, and as a plugin of pytest it answers, in lines of JSON on the two descriptors that ``FORKED``
names.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

VARIABLE = "FORKED"
LIMIT_BYTES = 6 << 30
"""Of addresses: a mutant that keeps ever more ends before the machine does."""


class Forks:
    """A process that has collected the tests of a copy."""

    def __init__(self, copy: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        asked, ask = os.pipe()
        answer, answered = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.mutants.forked", *arguments],
            cwd=copy,
            env={**environment, VARIABLE: f"{asked},{answered}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(asked, answered),
        )
        os.close(asked)
        os.close(answered)
        self._ask, self._answer = os.fdopen(ask, "w"), os.fdopen(answer)

    def noticed_by(self, change: Mapping[str, Any] | None, tests: Sequence[str], seconds: float) -> str | None:
        """Which of these tests fails with the change: its id, or in words how the process ended; None if all pass.

        ``change`` is a module's path within the package, and what stands there from ``start`` to ``end`` then. A change that cannot
        be made in a process that runs is noticed by nobody.
        """
        print(json.dumps({"change": change, "tests": [*tests], "seconds": seconds}), file=self._ask, flush=True)
        answer = self._answer.readline()
        assert answer, f"pytest has ended with {self._process.wait()}"
        noticed: str | None = json.loads(answer)
        return noticed

    def close(self) -> None:
        self._ask.close()
        self._process.wait()
        self._answer.close()


_sources: dict[str, bytes] = {}
"""By a module's path within the package."""
_functions: dict[str, list[FunctionType]] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Find every function of the package, before conftest.py takes them out of the sight of the collector of garbage."""
    import transcript_store

    top = Path(transcript_store.__file__).parent
    for path in sorted(top.rglob("*.py")):
        module = path.relative_to(top)
        if (
            module.parts[0][0] == "_" or str(module) == "library.py"
        ):  # what the rest stands on: some of that needs other packages
            importlib.import_module(".".join(("transcript_store", *module.with_suffix("").parts)))
            _sources[str(module)] = path.read_bytes()
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(f"{top}/"):
            _functions.setdefault(each.__code__.co_filename[len(f"{top}/") :], []).append(each)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Instead of running the tests: answer whoever asks, to the end of the questions."""
    asked, answered = map(int, os.environ[VARIABLE].split(","))
    items = {item.nodeid: item for item in session.items}
    gc.freeze()
    with os.fdopen(asked) as questions, os.fdopen(answered, "w") as answers:
        for question in questions:
            print(json.dumps(_noticed_by(items, **json.loads(question))), file=answers, flush=True)
    return True


def _noticed_by(
    items: Mapping[str, pytest.Item], *, change: dict[str, Any] | None, tests: list[str], seconds: float
) -> str | None:
    scratch = tempfile.mkdtemp()
    told, tell = os.pipe()
    if not (child := os.fork()):
        try:
            os.setsid()
            os.close(told)
            _meet(change, [items[test] for test in tests], Path(scratch), tell)
        finally:
            os._exit(2)
    os.close(tell)
    descriptor = os.pidfd_open(child)
    has_ended = bool(select.select([descriptor], [], [], seconds)[0])
    os.close(descriptor)
    for kill in (os.killpg, os.kill):  # its own processes too; it may not have come to its session
        with suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    test = os.read(told, 1 << 16) if select.select([told], [], [], 0)[0] else b""
    os.close(told)
    shutil.rmtree(scratch, ignore_errors=True)
    if not has_ended:
        return f"no end within {seconds:g} seconds"
    return None if status == 0 else test.decode() or f"an end with {status}"


def _meet(change: dict[str, Any] | None, tests: Sequence[pytest.Item], scratch: Path, tell: int) -> None:
    """Run tests to the first that fails; does not return."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    os.environ["TMPDIR"], tempfile.tempdir = str(scratch), None
    if change is not None:
        _put_in(**change)
    config = tests[0].config
    factory = config._tmp_path_factory  # type: ignore[attr-defined] # each fork has a folder of its own, which goes with it
    factory._given_basetemp, factory._basetemp = scratch / "pytest", None
    config.pluginmanager.register(_Ends(tell))
    for test, following in zip(tests, [*tests[1:], None], strict=True):
        config.hook.pytest_runtest_protocol(item=test, nextitem=following)
    os._exit(0)


class _Ends:
    """With the first test that fails."""

    def __init__(self, tell: int) -> None:
        self._tell = tell

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._tell, report.nodeid.encode())
            os._exit(1)


def _put_in(module: str, start: int, end: int, text: str) -> None:
    """Give the functions that stand around a place the code that they have with another text there."""
    source = _sources[module]
    first = source.count(b"\n", 0, start) + 1
    changed = compile(source[:start] + text.encode() + source[end:], module, "exec", dont_inherit=True)
    fresh = {(code.co_qualname, code.co_firstlineno): code for code in _within(changed)}
    for function in _functions.get(module, ()):
        code = function.__code__
        if code.co_firstlineno <= first <= max(_lines(code)):
            with suppress(ValueError):  # without a name from around it that it had: what survives here meets the file
                function.__code__ = fresh[code.co_qualname, code.co_firstlineno]


def _within(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _within(constant)


def _lines(code: CodeType) -> Iterator[int]:
    for each in (code, *_within(code)):
        yield from (line for *_, line in each.co_lines() if line)
