"""What all tests share: printed examples are tests, and a skip can be made a failure."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import count, repeat
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers
from sybil import Document, Example, Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import CodeBlockParser as MarkdownBlockParser
from sybil.parsers.markdown import PythonCodeBlockParser as MarkdownPythonParser
from sybil.parsers.rest import PythonCodeBlockParser as DocstringPythonParser

from tests.kit.tools import tool as tool_of_this_machine
from transcript_store.testing.profiles import register_profiles

# A shell's job in the background ignores Ctrl-C, and `nohup` the end of the terminal; what meets them is tested with them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

register_profiles()
settings.register_profile("plain", settings.get_profile("ci"), max_examples=12, database=None)
settings.register_profile("explore", settings.get_profile("nightly"), max_examples=1000, database=None)
settings.load_profile("plain")
_local_constants = providers._get_local_constants
# Hypothesis also draws constants that it finds in the modules that are imported so far, unless they stand below a folder named "test":
# other examples in each worker and each clone. On a new clone it reads the whole package for them, 2.3 s in each worker.
providers._get_local_constants = lambda: providers._local_constants


def run_in_shell(example: Example) -> None:
    """A ``bash`` block is run as it is printed, and has to succeed. (A ``sh`` block is for a person: CI runs those.)"""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example.parsed],
        env={**os.environ, "PATH": path, "XDG_CACHE_HOME": str(Path.cwd())},
        capture_output=True,
        check=False,
    )
    if (missing := re.search(r": ([\w-]+): command not found$", done.stderr.decode(), re.MULTILINE)) is not None:
        pytest.skip(f"needs {missing[1]}")
    if done.returncode:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}")


def in_an_empty_folder(namespace: dict[str, Any]) -> None:
    namespace["_before"], namespace["_folder"] = Path.cwd(), tempfile.TemporaryDirectory()
    os.chdir(namespace["_folder"].name)


def back(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_before"])
    namespace["_folder"].cleanup()


_printed = Sybil(
    parsers=[MarkdownPythonParser(), MarkdownBlockParser(language="bash", evaluator=run_in_shell)],
    patterns=["*.md"],
    excludes=["integrations.md"],  # run where the frameworks are: tests/integrations
    setup=in_an_empty_folder,
    teardown=back,
)
_docstrings = Sybil(
    parsers=[DocstringPythonParser()],
    patterns=["transcript_store/*.py", "transcript_store/**/*.py"],
    document_types={".py": Document},
    setup=in_an_empty_folder,
    teardown=back,
)
pytest_collect_file = (_printed + _docstrings).pytest()


TOP = Path(__file__).parent
TESTS = TOP / "tests"
PROOF = TESTS / "crash"
LAST = {
    TESTS / "chat",
    TESTS / "cli",
    *TESTS.glob("reports/test_chat_*.py"),
    TESTS / "reports/test_turns_taken_back.py",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        metavar="K/N",
        type=_share,
        default=(0, 1),
        help="only every N-th case of each test; with the next K the next ones, so that N runs take all",
    )
    parser.addoption(
        "--shares",
        metavar="FILE",
        type=_shares,
        default={},
        help="with --share: N for the tests, files and folders that this JSON object names (0: none of their cases)",
    )
    parser.addoption("--skipped", metavar="FILE", type=Path, help="write down which tests were skipped, an id a line")
    parser.addoption(
        "--only",
        metavar="FILE",
        type=_ids,
        help="only the tests whose ids (of all cases: without a case), or files, stand there",
    )


def _share(text: str) -> tuple[int, int]:
    which, of = map(int, text.split("/"))
    return which, of


def _shares(file: str) -> dict[str, int]:
    shares: dict[str, int] = json.loads(Path(file).read_text(encoding="utf-8"))
    return shares


def _ids(file: str) -> set[str]:
    return set(Path(file).read_text(encoding="utf-8").splitlines())


def _numbered(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, int]]:
    """Each test's cases, counted from a number of its own: so tests of one case are spread over the shares, too.

    The examples of a printed document need those before them: together they are one case. What `sampled` made long is counted by
    itself: or a share of each fourth case would have all of a sample of each fourth, and the next share none.
    """
    numbers: dict[tuple[Path, str, bool], Iterator[int]] = {}
    for item in items:
        name = "" if isinstance(item, SybilItem) else getattr(item, "originalname", item.name)
        test = item.path, name, item.get_closest_marker("unsampled") is not None
        if test not in numbers:
            first = crc32("::".join((item.path.relative_to(TOP).as_posix(), test[1])).encode())
            numbers[test] = repeat(first) if isinstance(item, SybilItem) else count(first)
        yield item, next(numbers[test])


def _sample(items: list[pytest.Item]) -> None:
    """Of the plain cases of each test that is `sampled` each N-th stays plain, and at least one."""
    tests: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None and item.get_closest_marker("long") is None:
            tests.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for (path, name), cases in tests.items():
        (marker,) = cases[0].iter_markers("sampled")
        every = min(marker.kwargs["every"], len(cases))
        for number, item in enumerate(cases, crc32(f"{path.relative_to(TOP).as_posix()}::{name}".encode())):
            if number % every:
                item.add_marker(pytest.mark.long)
                item.add_marker(pytest.mark.unsampled)


def explores(config: pytest.Config) -> bool:
    """Whether the long proofs are asked for. Then Hypothesis looks at many examples, at others in each run."""
    return re.search(r"(?<!not )\blong\b", config.option.markexpr or "") is not None


def pytest_collection(session: pytest.Session) -> None:
    """Each worker first imports a part of the tests that is its own, then those of the others.

    On a new clone the import of a test file rewrites its assertions, and keeps the result beside it. That is 10 s for all
    files; begun at different places, each worker does a part and finds that of the others. So it writes bytecode even where
    the environment asks for none: without it each worker takes 13 s longer, and each process that a test starts compiles the package.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    gc.disable()  # until all is collected: nothing of it is garbage, and there is more and more to look through
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    asked = [Path(argument).absolute() for argument in session.config.args]
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if not {path, *path.parents}.isdisjoint(asked)]
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in files[first:] + files[:first]:
        with suppress(Exception, pytest.skip.Exception):  # the collection says so, with the place
            import_module(".".join(path.relative_to(TOP).with_suffix("").parts))


def _share_of(item: pytest.Item, shares: dict[str, int], of: int) -> int:
    """The nearest that is named: the test, its file, or a folder that the file is in."""
    if not shares:
        return of
    path = item.path.relative_to(TOP)
    names = [item.nodeid.partition("[")[0], *(each.as_posix() for each in (path, *path.parents))]
    return next((shares[name] for name in names if name in shares), of)


@cache
def _parents(path: Path) -> frozenset[Path]:
    """A file, and the folders that it is in. All tests of a file ask for them, and there are twelve thousand."""
    return frozenset((path, *path.parents))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``pytest -m crash`` is the whole proof: every test that names a promise by its number, and all of tests/crash.

    Whatever Hypothesis draws examples for is a plain test with few of them, always the same, and a long one with many. What drives a
    browser is long.
    Whatever imports the providers' SDKs comes last: before that a process is a third as large, and a fork takes a third.
    """
    which, of = config.getoption("share")
    only, shares = config.getoption("only"), config.getoption("shares")
    others = set()
    _sample(items)
    for item, case in _numbered(items):
        share = _share_of(item, shares, of)
        names = (item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0])
        is_named = only is None or not only.isdisjoint(names)
        if not is_named or not share or case % share != which % share:
            others.add(item)
    items[:] = [item for item in items if item not in others]
    config.hook.pytest_deselected(items=list(others))
    items.sort(key=lambda item: not LAST.isdisjoint(_parents(item.path)))
    for item in items:
        if isinstance(item, SybilItem):
            # Sybil 10.1.0 expects two frames in each exception of a chain: one with a single frame ends the worker unexplained.
            item._traceback_filter = lambda excinfo: excinfo.traceback  # type: ignore[method-assign]
        story = getattr(getattr(item, "function", None), "__doc__", None) or ""
        if "browser" in getattr(item, "fixturenames", ()):  # a Chromium is four seconds of the processor
            item.add_marker(pytest.mark.long)
        if explores(config) and is_hypothesis_test(getattr(item, "function", None)):
            item.add_marker(pytest.mark.long)
        if PROOF in _parents(item.path) or re.search(r"\bP\d+\b", story):
            item.add_marker(pytest.mark.crash)


def pytest_collection_finish(session: pytest.Session) -> None:
    """The tests are 800,000 objects that stay to the end: no collection of garbage, and no fork, needs to go through them.

    A full collection took 0.4 s, many tests ask for one, and it was a fifth of the whole run.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """``pytest -m crash`` uses all cores, unless ``-n`` says how many. ``-m long`` explores, before a test is imported."""
    option = config.option
    if explores(config):
        settings.load_profile("explore")
        providers._get_local_constants = _local_constants
    alone = "PYTEST_XDIST_WORKER" in os.environ or option.collectonly or option.usepdb
    if option.markexpr == "crash" and getattr(option, "numprocesses", 0) is None and not alone:
        option.numprocesses = os.cpu_count()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``-n``: whoever has nothing left to do takes from who has, for a test may take a millisecond or a minute."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.option.dist == "load" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What cannot run here is skipped, and says why: ``-ra`` lists it at the end."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    for marker in item.iter_markers("needs"):
        for tool in marker.args:
            if tool_of_this_machine(tool) is None:
                pytest.skip(f"needs {tool}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """A printed example builds on those before it on its page. With ``-n`` another process may have run them: they run here too."""
    if isinstance(item, SybilItem):
        done = item.example.namespace.setdefault("_done", set())
        for earlier in item.example.document.examples():
            if earlier.start < item.example.start and earlier.start not in done:
                done.add(earlier.start)
                earlier.evaluate()
        done.add(item.example.start)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The figures that tests noted with ``record_property``, summed by name; and which tests were skipped, if they are asked for."""
    if (skipped := terminalreporter.config.getoption("skipped")) is not None:
        ids = {report.nodeid for report in terminalreporter.stats.get("skipped", ())}
        ids = {
            each.partition("[")[0] if "NOTSET]" in each else each for each in ids
        }  # there were no cases: elsewhere are some
        skipped.write_text("".join(f"{each}\n" for each in sorted(ids)), encoding="utf-8")
    figures: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        figures.update({name: value for name, value in report.user_properties if isinstance(value, int)})
    if figures:
        terminalreporter.section("figures of the proof")
        for name, count in sorted(figures.items()):
            terminalreporter.write_line(f"{count:>9,}  {name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """With ``TRANSCRIPT_STORE_REQUIRE_ALL=1`` a test that cannot run here is a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("TRANSCRIPT_STORE_REQUIRE_ALL") == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, and TRANSCRIPT_STORE_REQUIRE_ALL=1: {report.longrepr}"
    return report
