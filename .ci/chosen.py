"""What `.ci/run` runs of the long proofs: those that a change comes near, and a share of the rest. Nothing is left out unseen.

``.ci/near.json`` says which modules each proof runs and how long it takes (``python -m tests.mutants.near`` writes it), and
``.ci/whole.json`` at which commit `.ci/whole` ran each of its parts. A proof is near a change if it runs a module that has changed
since its part ran, or if its file, or a module of the tests that its file imports, has changed.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REST = 16
"""Of a proof that no change comes near, a run takes every so manyth case, and the next commit's run the next ones."""

OLD = 100
"""A part of `.ci/whole` is too old after so many commits."""

AREAS: dict[str, tuple[str, ...]] = {
    "release": ("pyproject.toml", ".ci/release", "examples/", "tests/compat/outsider.py", "transcript_store/rescue.py"),
    "site": ("pyproject.toml", ".ci/site", ".ci/docstrings.py", "mkdocs.yml", "docs/"),
    "browser": ("pyproject.toml", "transcript_store/view/", "transcript_store/serving/", "tests/view/"),
    "frameworks": ("pyproject.toml", "transcript_store/integrations/", "transcript_store/aio/", "tests/integrations/"),
    "programs": (
        "pyproject.toml",
        "transcript_store/exporting/",
        "transcript_store/formats/",
        "transcript_store/importing/",
        "transcript_store/keeping/",
        "transcript_store/mcp/",
        "transcript_store/sessions/",
        "transcript_store/sources/",
        "tests/programs/",
    ),
}
"""What is proved only when a file below one of these has changed: it needs much that has to be installed."""

PARTS = {  # in this order: the first that names a file is its part
    "tests/programs": "programs",
    "tests/integrations": "frameworks",
    "tests/view": "browser",
    "tests/mutants": "mutants",
    "tests/crash/test_system_calls.py": "calls",
    "tests/crash": "crash",
    "tests/backends": "backends",
    "tests": "proofs",
}
"""By which part of `.ci/whole` a long proof is run."""

OTHER_PYTHONS = {
    "tests/aio": 1,  # asyncio
    "tests/cli/test_main.py": 1,  # argparse
    "tests/cli/test_names.py": 1,
    "tests/search": 1,  # sqlite3
    "tests/test_decoding.py": 1,  # json
    "tests/test_redaction.py": 1,  # re
    "tests/view/test_markdown.py": 1,
}
"""What runs whole on each other Python: what it is about differs between them. Of all else a share runs there."""


@dataclass(frozen=True)
class Proof:
    """A long test with all its cases."""

    id: str
    cases: int
    seconds: float
    """Of the processor, for all cases."""
    modules: frozenset[str] | None
    """The files of the package that it runs; None if that is not known: every change is near."""

    @property
    def file(self) -> str:
        return self.id.partition("::")[0]


@dataclass(frozen=True)
class Chosen:
    """Which cases run: of each proof every so manyth, by its id."""

    shares: Mapping[str, int]
    seconds: float
    near: int
    every: int
    """Of the proofs that are near: 1, or more if they take longer than there is time for."""
    deferred: float
    """Seconds of the near ones that this run leaves to the next ones, and to `.ci/whole`."""


def part_of(file: str) -> str:
    """The part of `.ci/whole` that runs the long proofs of this file."""
    return next(part for place, part in PARTS.items() if file == place or file.startswith(f"{place}/"))


def read_near(path: Path, cases: Mapping[str, int]) -> list[Proof]:
    """The long proofs that there are (``cases`` has the number of cases of each), with what ``python -m tests.mutants.near`` wrote of them.

    A proof that it did not measure takes as long as others do, and every change is near it. So a new test is near, and a test that
    has a new name is not forgotten.
    """
    near = json.loads(path.read_text(encoding="utf-8"))
    files = [f"transcript_store/{module}" for module in near["modules"]]
    measured = {
        test: (seconds / count, frozenset(files[number] for number in modules))
        for test, (count, seconds, modules) in near["proofs"].items()
        if modules is not None
    }
    known = [(count, measured[test][0] * count) for test, count in cases.items() if test in measured]
    mean = sum(seconds for _, seconds in known) / max(1, sum(count for count, _ in known))
    return [
        Proof(test, count, measured.get(test, (mean, None))[0] * count, measured.get(test, (mean, None))[1])
        for test, count in cases.items()
    ]


def touches(area: str, changed: Collection[str] | None) -> bool:
    """Whether one of the changed files is the area's; None: nobody knows what has changed."""
    return changed is None or any(file.startswith(AREAS[area]) for file in changed)


def is_near(proof: Proof, changed: Collection[str] | None, needs: Collection[str]) -> bool:
    """Whether a change comes near a proof whose file needs these files."""
    if changed is None or proof.modules is None:
        return changed is None or bool(changed)
    return any(file in proof.modules or file in needs for file in changed)


def choose(proofs: Iterable[Proof], changed: Mapping[str, Collection[str] | None], seconds: float, top: Path) -> Chosen:
    """Shares of the long proofs that take about so many seconds of the processor together.

    The near ones have at least a quarter of them, however long the share of the rest takes.

    ``changed`` has for each part of `.ci/whole` the files that have changed since it ran; None: it never ran.
    """
    near, rest, none = [], [], []
    for proof in proofs:
        part = part_of(proof.file)
        if part in AREAS:
            (near if touches(part, changed[part]) else none).append(proof)
        elif is_near(proof, changed[part], needs(proof.file, top)):
            near.append(proof)
        else:
            rest.append(proof)
    of_rest = sum(proof.seconds for proof in rest) / REST
    of_near = sum(proof.seconds for proof in near)
    every = min(REST, max(1, math.ceil(of_near / max(seconds / 4, seconds - of_rest))))
    shares = {proof.id: every for proof in near} | {proof.id: REST for proof in rest} | {proof.id: 0 for proof in none}
    return Chosen(shares, of_rest + of_near / every, len(near), every, of_near * (1 - 1 / every))


@cache
def needs(file: str, top: Path) -> frozenset[str]:
    """A file of tests, the modules of the tests that it imports, and what those import."""
    found: set[str] = set()
    ahead = [file]
    while ahead:
        this = ahead.pop()
        if this not in found and (top / this).is_file():
            found.add(this)
            ahead += _imported(top / this)
    return frozenset(found)


def _imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.")]
