"""An environment for each framework, with its own tests: ``python -m tests.integrations.environments FOLDER [NAME …]``.

None of them belongs into ours: together they are larger than all else, and two of them may exclude each other. The tests that are
theirs come from the source distribution of exactly the pinned version. Nothing of theirs is copied into this project.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
OURS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "sybil")
"""What our own tests need there."""


class Framework(NamedTuple):
    """A framework whose protocol we speak. The name is that of its distribution, and of our extra."""

    name: str
    version: str
    module: str
    """By which a test sees whether it is there."""
    theirs: tuple[str, ...]
    """What their tests need."""
    distribution: str = ""
    """What is installed, if it is called otherwise."""
    has_tests: bool = True
    """Whether there are tests of theirs for such a store."""
    suffix: str = ""
    """Behind the name of its environment, if it is not the newest version."""
    from_source: bool = False
    """Whether the wheel is passed by: one has a program of 365 MB in it, which no test needs."""

    @property
    def key(self) -> str:
        """What its environment is called."""
        return self.name + self.suffix

    @property
    def folder(self) -> str:
        """Of our tests, and how our module is called."""
        return self.name.replace("-", "_")


PAGES = ("ag-ui-protocol", "starlette")
"""What pydantic-ai's adapters for pages need."""

FRAMEWORKS = (
    Framework(
        "openai-agents",
        "0.24.0",
        "agents",
        ("pytest-asyncio", "pytest-mock", "inline-snapshot", "httpx", "psycopg[binary]>=3.2", "obstore>=0.8"),
    ),
    Framework("claude-agent-sdk", "0.2.189", "claude_agent_sdk", ("trio",), from_source=True),
    Framework("pydantic-ai", "2.68.0", "pydantic_ai", PAGES, distribution="pydantic-ai-slim", has_tests=False),
    Framework("pydantic-ai-harness", "0.62.0", "pydantic_ai_harness", (), has_tests=False),
    Framework(
        *("pydantic-ai", "2.33.0", "pydantic_ai", PAGES),
        distribution="pydantic-ai-slim",
        has_tests=False,
        suffix="-oldest",
    ),
)


def make(framework: Framework, folder: Path) -> None:
    """The environment ``folder/<key>``, and their source with its tests in ``folder/<key>/theirs``."""
    place = folder / framework.key
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [str(place / "bin" / "pip"), "--disable-pip-version-check", "-q"]
    pinned = f"{framework.distribution or framework.name}=={framework.version}"
    built = ["--no-binary", framework.name] if framework.from_source else []
    subprocess.run(
        [*pip, "install", *built, "-e", f"{ROOT}[{framework.name}]", pinned, *OURS, *framework.theirs], check=True
    )
    if not framework.has_tests:
        return
    with tempfile.TemporaryDirectory() as download:
        subprocess.run(
            [*pip, "download", "--no-deps", "--no-binary", framework.name, "-d", download, pinned], check=True
        )
        (archive,) = Path(download).iterdir()
        with tarfile.open(archive) as packed:
            packed.extractall(download, filter="data")
        (source,) = (each for each in Path(download).iterdir() if each.is_dir())
        source.rename(place / "theirs")


if __name__ == "__main__":
    place, *names = sys.argv[1:]
    for each in FRAMEWORKS:
        if not names or each.key in names:
            make(each, Path(place).absolute())
