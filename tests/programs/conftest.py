"""Where the programs are: ``TRANSCRIPT_STORE_PROGRAMS``, a folder into which npm installed them. ``.ci/run`` makes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import lab as the_lab
from tests.programs.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if not os.environ.get("TRANSCRIPT_STORE_PROGRAMS"):
        packages = " ".join(package for package, _ in the_lab.PROGRAMS.values())
        pytest.skip(
            f"needs the programs: npm install --prefix FOLDER {packages}; export TRANSCRIPT_STORE_PROGRAMS=FOLDER"
        )
    with the_lab.opened(tmp_path) as opened:
        yield opened
