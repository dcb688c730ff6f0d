"""The service file: systemd accepts it and starts the right command, and launchd's file matches."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.keeping.helpers import words_of
from transcript_store.keeping import service_for

AWKWARD = [
    "plain",
    "with space",
    "100%",
    "$HOME",
    "${HOME}",
    'quo"te',
    "it's",
    "back\\slash",
    "ü",
    "a;b",
    "#c",
    "-x",
    "t\tab",
    "",
]


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cc", "Cs", "Zl", "Zp"]))
    )
)
def test_systemd_reads_the_words_that_were_meant(words: list[str]) -> None:
    command = ["/usr/bin/python3", *words, *AWKWARD]
    assert words_of(service_for(command, environ={"HOME": "/h"}, platform="linux").text) == command


def test_a_service_knows_the_variables_that_a_shell_has() -> None:
    """Those that say where programs keep sessions, and where the library's own files are; a key only as a path."""
    environ = {
        "HOME": "/h",
        "CODEX_HOME": "/x y 100% $HOME",
        "CLAUDE_CONFIG_DIR": "/c",
        "SECRET": "s",
        "TRANSCRIPT_STORE_KEY": "ab" * 32,
    }
    text = service_for(["/p"], environ=environ, platform="linux").text
    assert 'Environment="CODEX_HOME=/x y 100%% $HOME"\n' in text  # only in a command a dollar sign means something
    assert "Environment=CLAUDE_CONFIG_DIR=/c\n" in text
    assert "SECRET" not in text
    assert "abab" not in text
    assert (
        "TRANSCRIPT_STORE_KEY=/k"
        in service_for(["/p"], environ={**environ, "TRANSCRIPT_STORE_KEY": "/k"}, platform="linux").text
    )


@pytest.mark.needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """``systemd-analyze verify`` finds nothing, with a library whose path has all that systemd treats in another way."""
    if subprocess.run(["systemd-analyze", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("systemd-analyze does not run here")
    command = [sys.executable, "-m", "transcript_store", "keep", *AWKWARD]
    environ = {"HOME": str(tmp_path), "CODEX_HOME": "/a b%$"}
    service = service_for(command, environ=environ, platform="linux")
    file = tmp_path / os.path.basename(service.path)
    file.write_text(service.text)
    runtime = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(file)], capture_output=True, text=True, check=False, env=runtime
    )
    if "Failed to initialize manager" in done.stderr or "Failed to set up" in done.stderr:
        pytest.skip(f"systemd-analyze cannot verify a unit here: {done.stderr.strip()[:100]}")
    assert (done.returncode, file.name in done.stderr) == (0, False), done.stderr


def test_launchd_reads_the_same() -> None:
    """Written, and not run: there is no macOS here. plistlib reads it as launchd's own parser does."""
    command = ["/usr/bin/python3", *AWKWARD[:-1]]
    service = service_for(command, environ={"HOME": "/Users/ada", "CODEX_HOME": "/x y"}, platform="darwin", uid=501)
    read = plistlib.loads(service.text.encode())
    assert read["ProgramArguments"] == command
    assert read["EnvironmentVariables"]["CODEX_HOME"] == "/x y"
    assert (read["RunAtLoad"], read["KeepAlive"]) == (True, True)
    assert service.path == f"/Users/ada/Library/LaunchAgents/{read['Label']}.plist"
    assert service.start == (("launchctl", "bootstrap", "gui/501", service.path),)
    assert service.stop == (("launchctl", "bootout", f"gui/501/{read['Label']}"),)
    if (plutil := shutil.which("plutil")) is not None:
        subprocess.run([plutil, "-lint", "-"], input=service.text.encode(), check=True)
