"""Lets the tests at mutants: in copies of the package, never in the working tree.

First a copy that notes which of its statements run is tested once (``reach``): so it is known which tests come near a mutant, and
how long they take. Then those tests run at each mutant, alone, the quickest and most different first, to the first that fails: in a fork
of a pytest that has collected them (tests/mutants/forked.py), and what survives there once more with the mutant in the file, where the
processes that tests start meet it too. A test that does not end counts as failed: many mutants wait for ever.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.mutants.forked import LIMIT_BYTES, Forks
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.reach import NOTES, VARIABLE

TOP = Path(__file__).parent.parent.parent
PACKAGE = TOP / "transcript_store"
WHERE = (
    "_log/*.py",
    "_conversation/*.py",
    "_os/directory.py",
    "_os/lock.py",
    "_snapshots/*.py",
    "_library/*.py",
    "library.py",
)
"""What is mutated: everything that decides what is on the disk."""
SEED = 20261122
_DATES = count(1)
_LIMITED = f"""
import resource, sys, pytest
resource.setrlimit(resource.RLIMIT_AS, ({LIMIT_BYTES}, {LIMIT_BYTES}))
sys.exit(pytest.main(sys.argv[1:]))
"""
_LEFT_OUT = {
    "tests/chat": "what they are about is above the store",
    "tests/cli": "the same",
    "tests/formats": "the same",
    "tests/importing": "the same",
    "tests/integrations": "the same",
    "tests/mcp": "the same",
    "tests/backends": "the same",
    "tests/programs": "the same",
    "tests/search": "the same",
    "tests/view": "the same",
    "tests/fuzz": "they find by luck what the others find by design",
    "tests/mutants": "they are this",
    "tests/test_benchmarks.py": "they measure",
    "tests/test_doctor.py": "they try the machine",
    "tests/test_examples.py": "they kill other processes",
    "tests/test_speed.py": "they measure",
    "tests/test_local_model.py": "it is about a model",
    "tests/test_documents.py": "they read the documents",
    "tests/test_house.py": "they read the source",
    "tests/test_processes.py": "storms of processes: what runs there is not seen here, and they take long",
    "tests/test_library_storm.py": "the same",
    "tests/crash/test_sync_mutants.py": "they count what stands in the source",
}
_CHOSEN = ["-m", "not root and (not long or unsampled)", *(f"--ignore={path}" for path in _LEFT_OUT)]
"""All cases of the plain tests: a sample of them would let mutants live."""


@dataclass(frozen=True)
class Place:
    """A mutant, and the module that it is in."""

    module: Path
    """Relative to the package."""
    mutant: Mutant

    @property
    def statement(self) -> tuple[Path, int]:
        return self.module, self.mutant.statement


@dataclass
class Reach:
    """What came of one run over a package that is as it should be."""

    tests: dict[tuple[Path, int], list[tuple[float, str]]] = field(default_factory=dict)
    """For each statement the tests that run it, with their seconds, in the order in which they are tried."""
    passed: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    """Tests that failed, or were skipped: no mutant is held against them."""


@dataclass(frozen=True)
class Outcome:
    """What came of one mutant."""

    place: Place
    tests: int
    """How many tests came near it."""
    noticed_by: str | None
    """The test that failed, or in words how it ended; None: it survived."""

    @property
    def is_killed(self) -> bool:
        return self.noticed_by is not None


def places(patterns: Sequence[str] = WHERE) -> list[Place]:
    """Every mutant of the modules that these patterns name."""
    modules = sorted({path for pattern in patterns for path in PACKAGE.glob(pattern)})
    return [
        Place(module.relative_to(PACKAGE), mutant) for module in modules for mutant in mutants_of(module.read_bytes())
    ]


def sample(found: Sequence[Place], size: int, seed: int = SEED) -> list[Place]:
    """So many of them, always the same: a change to the code moves only those that it is about in or out."""
    return sorted(found, key=lambda place: place.mutant.rank(seed))[:size]


@contextmanager
def copies(number: int) -> Iterator[list[Path]]:
    """So many folders with the package and its tests. On a disk: where a sync costs nothing, threads do not meet."""
    with TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch:
        made = [Path(scratch) / f"copy-{k}" for k in range(number)]
        for copy in made:
            for name in ("transcript_store", "tests", "docs"):
                shutil.copytree(TOP / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            for name in ("conftest.py", "pyproject.toml", "README.md"):
                shutil.copy2(TOP / name, copy / name)
            (copy / "tmp").mkdir()
        yield made


def reach(copy: Path, wanted: Sequence[Place], workers: int) -> Reach:
    """Run the tests once, and see which of them run the statements that ``wanted`` are in."""
    statements = sorted({place.statement for place in wanted})
    found = copy / "reached.json"
    parallel = [f"-n{workers}"] if workers > 1 else []
    with ExitStack() as stack:
        (copy / "transcript_store/_reached.py").write_text(NOTES)
        for module in {module for module, _ in statements}:
            marks = [(start, number) for number, (where, start) in enumerate(statements) if where == module]
            stack.enter_context(changed(copy / "transcript_store" / module, partial(with_notes, marks)))
        status = _pytest(
            copy, ["-p", "tests.mutants.reach", *_CHOSEN, *parallel, "tests"], {VARIABLE: str(found)}, None
        )
    assert status in (0, 1), f"pytest ended with {status}: what it says of mutants would mean nothing"
    near = Reach()
    for test, seen in sorted(json.loads(found.read_text()).items(), key=lambda item: item[1]["seconds"]):
        if seen["passed"]:
            near.passed.add(test)
            for number in seen["statements"]:
                near.tests.setdefault(statements[number], []).append((seen["seconds"], test))
        else:
            near.failed.append(test)
    near.tests = {statement: _varied(tests) for statement, tests in near.tests.items()}
    return near


def _varied(tests: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The quick ones first; a function that has run with so many parameters waits so many times longer for the next ones."""
    times: Counter[str] = Counter()
    ranked: list[tuple[float, float, str]] = []
    for takes, test in sorted(tests):
        function = test.partition("[")[0]
        times[function] += 1
        ranked.append((takes * times[function], takes, test))
    return [(takes, test) for _, takes, test in sorted(ranked)]


def with_notes(marks: Sequence[tuple[int, int]], source: bytes) -> bytes:
    """A module that notes, before each of these statements, its number."""
    for start, number in sorted(marks, reverse=True):
        indent = start - source.rfind(b"\n", 0, start) - 1
        source = source[:start] + f"_reached({number})\n{' ' * indent}".encode() + source[start:]
    lines = source.splitlines(keepends=True)
    # After the first import, which may be one of `__future__`, and before `__main__` calls its function.
    ends = [node.end_lineno for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines.insert(ends[0] or 0 if ends else len(lines), b"from transcript_store._reached import reached as _reached\n")
    return b"".join(lines)


def noticed_by(
    copy: Path, forks: Forks, place: Place, tests: Sequence[tuple[float, str]], seconds: float
) -> str | None:
    """The first of these tests that fails with the mutant, taking as many as fit into so many seconds."""
    chosen: list[tuple[float, str]] = []
    for takes, test in tests:
        if takes <= seconds or not chosen:
            seconds -= takes
            chosen.append((takes, test))
    if not chosen:
        return None
    names, limit = [test for _, test in chosen], _limit(chosen)
    mutant = place.mutant
    change = {"module": str(place.module), "start": mutant.start, "end": mutant.end, "text": mutant.text}
    if (noticed := forks.noticed_by(change, names, limit)) is not None:
        return noticed
    with changed(copy / "transcript_store" / place.module, mutant.applied_to):
        fails = _pytest(copy, ["-x", "-p", "no:cacheprovider", *names], {}, limit) != 0
    return "a test that starts a process" if fails else None


def _limit(tests: Sequence[tuple[float, str]]) -> float:
    """Whoever has not ended in many times the seconds that it takes will not end."""
    return 15 + 6 * sum(takes for takes, _ in tests)


@contextmanager
def changed(path: Path, change: Callable[[bytes], bytes]) -> Iterator[None]:
    """A file with other content for a while; of another date each time, by which Python knows what it has compiled."""
    source, status = path.read_bytes(), path.stat()
    path.write_bytes(change(source))
    date = next(_DATES)
    os.utime(path, (date, date))
    try:
        yield
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def environment(copy: Path) -> dict[str, str]:
    left_out = ("PYTEST", "COV", "TOX", "PYTHONDONTWRITEBYTECODE")  # a copy is compiled once, not by each run
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "PYTHONPATH": str(copy), "TMPDIR": str(copy / "tmp"), "CI": "1"}


def _pytest(copy: Path, arguments: Sequence[str], more: dict[str, str], seconds: float | None) -> int | None:
    """Run pytest in a copy; returns its exit status, None if it did not end in time."""
    process = subprocess.Popen(
        [sys.executable, "-c", _LIMITED, "-q", "--no-header", "--tb=no", *arguments],
        cwd=copy,
        env={**environment(copy), **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that whatever it has begun ends with it
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(
    wanted: Sequence[Place], *, workers: int, seconds: float = 600, told: Callable[[Outcome], None] = lambda _: None
) -> tuple[list[Outcome], Reach]:
    """Try each mutant; ``told`` hears of each as it is known."""
    with copies(workers) as made, ExitStack() as stack, ThreadPoolExecutor(workers) as threads:
        near = reach(made[0], wanted, workers)
        free: SimpleQueue[tuple[Path, Forks]] = SimpleQueue()
        for copy in made:
            forks = Forks(copy, ["-p", "no:cacheprovider", *_CHOSEN, "tests"], environment(copy))
            stack.callback(forks.close)
            free.put((copy, forks))

        def try_one(place: Place) -> Outcome:
            tests = near.tests.get(place.statement, [])
            one = free.get()
            try:
                outcome = Outcome(place, len(tests), noticed_by(*one, place, tests, seconds))
            finally:
                free.put(one)
            told(outcome)
            return outcome

        outcomes = [*threads.map(try_one, wanted)]
        noticing = sorted({outcome.noticed_by for outcome in outcomes if outcome.noticed_by} & near.passed)
        assert noticing
        fails = free.get()[1].noticed_by(None, noticing, 600)
        assert not fails, f"{fails} in a copy in which nothing is wrong: what it says of mutants means nothing"
        return outcomes, near
