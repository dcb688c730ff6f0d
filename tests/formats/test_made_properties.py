"""Every session that the programs wrote for us, held to what can be checked without knowing the answer: see tests/session_properties.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import session_properties
from tests.formats.of_programs import made
from tests.formats.sources import SHARED

pytestmark = pytest.mark.long
VERSIONS = {
    "aider": ("0.86.2",),
    "continue": ("1.5.47",),
    "mistral-vibe": ("2.11.1", "3.0.3"),
    "omp": ("18.2.3",),
    "openhands": ("1.16.0",),
}


@pytest.mark.parametrize(
    ("program", "version"), [(name, one) for name, versions in VERSIONS.items() for one in versions]
)
def test_what_a_program_wrote(program, version):
    assert made(program, version)
    assert session_properties.check([Path(SHARED or "") / "corpora/made" / program / version]) == 0


@pytest.mark.parametrize("program", ["antigravity", "gptme", "grok"])
def test_properties_hold_for_published_files(program):
    """Files that others keep in their tests."""
    folder = Path(SHARED or "nowhere") / "corpora/wild" / program
    if not folder.is_dir():
        pytest.skip("needs the shared corpora")
    assert session_properties.check([folder]) == 0
