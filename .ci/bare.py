"""A machine that nobody prepared: Debian's smallest system, git, and one Python; and on it a user who is not root.

This module is the one place that says what such a machine has. Everything else is taken away: ``PATH`` is one folder of links,
no variable stays but those below, and the tests are told not to look elsewhere (``tests/kit/tools.py``).
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from machine import TOP, StopError, run, said, say

PACKAGES = ("git",)
"""What the machine has beside the packages that Debian calls required: README says "in a clone"."""

VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
"""What is kept, in either case of letters, and every ``PIP_*`` but the cache: without them pip finds no registry on some machines."""

USER = "nobody"
_BINARIES = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/")


class Bare:
    """Such a machine with one Python, in a folder that its user owns. ``name`` is that of the folder."""

    def __init__(self, scratch: Path, python: Path, name: str, **variables: str) -> None:
        """Raises `StopError` if that Python cannot be used here."""
        self.top = scratch / name
        self.top.mkdir()
        self._links = scratch / f"{name}.links"
        self._links.mkdir()
        path = [str(self._links)]
        for program in _programs():
            (self._links / program.name).symlink_to(program)
        prefix = Path(said(python, "-c", "import sys; print(sys.base_prefix)").strip())
        if prefix == Path("/usr"):
            for name_of_it in ("python3", python.resolve().name):
                (self._links / name_of_it).symlink_to(python.resolve())
        else:
            path.insert(0, str(_copied(python, prefix, scratch / f"{name}.python")))
        temporary = Path(
            tempfile.mkdtemp(dir=scratch)
        )  # without a space, or tests would have to quote each path they expect
        for folder in (self.top / "home", self.top / "pip"):
            folder.mkdir()
        self.home = self.top / "home"
        for settings in (Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
            if settings.exists():
                (self.home / ".config/pip").mkdir(parents=True, exist_ok=True)
                shutil.copy(settings, self.home / ".config/pip/pip.conf")
        kept = {key: value for key, value in os.environ.items() if key.lower() in map(str.lower, VARIABLES)}
        kept |= {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        self.variables = {
            **kept,
            "PATH": os.pathsep.join(path),
            "HOME": str(self.home),
            "USER": USER,
            "LOGNAME": USER,
            "TMPDIR": str(temporary),
            "PIP_CACHE_DIR": str(self.top / "pip"),
            "TRANSCRIPT_STORE_ONLY_PATH": "1",
            **variables,
        }
        self._give_away(self.top)
        self._give_away(temporary)

    def clone(self, name: str) -> Path:
        """A clone of what is committed, which the user owns."""
        place = self.top / name
        run("git", "clone", "-q", TOP, place)
        self._give_away(place)
        return place

    def shell(self, script: str, cwd: Path, *, input: str = "", more: Mapping[str, str] | None = None) -> str:
        """Run a script of bash as that user; what it printed, which is printed on. What it has started ends with it.

        Raises `subprocess.CalledProcessError` if it fails.
        """
        say(f"$ {script}")
        command = ["bash", "-eo", "pipefail", "-c", script]
        process = subprocess.Popen(
            [*self._as_the_user(), *command],
            cwd=cwd,
            env={**self.variables, **(more or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        printed = []
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(input)
            process.stdin.close()
            for line in process.stdout:
                print(line, end="", flush=True)
                printed.append(line)
            status = process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status:
            raise subprocess.CalledProcessError(status, script)
        return "".join(printed)

    def _as_the_user(self) -> list[str]:
        if os.geteuid():
            return []
        user = pwd.getpwnam(USER)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]

    def _give_away(self, folder: Path) -> None:
        if not os.geteuid():
            user = pwd.getpwnam(USER)
            run("chown", "-R", f"{user.pw_uid}:{user.pw_gid}", folder)


def _programs() -> list[Path]:
    """The programs of Debian's smallest system and of `PACKAGES`."""
    listed = said("dpkg-query", "-W", "-f", "${Package} ${Priority}\n").splitlines()
    packages = [package for package, priority in (line.split(" ") for line in listed) if priority == "required"]
    files = {
        Path(line) for line in said("dpkg-query", "-L", *packages, *PACKAGES).splitlines() if line.startswith(_BINARIES)
    }
    found = {path.name: path for path in files if os.access(path, os.X_OK) and path.is_file()}
    for name in ("awk", "sh"):  # which are links that a choice of the administrator makes
        if (at := shutil.which(name)) is not None:
            found[name] = Path(at)
    return [*found.values()]


def _copied(python: Path, prefix: Path, place: Path) -> Path:
    """A copy of a Python without what was installed into it, for it may stand in a folder that is closed to others; its programs."""
    minor = said(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.a", "idlelib", "turtledemo")
    shutil.copytree(prefix / "lib" / f"python{minor}", place / "lib" / f"python{minor}", symlinks=True, ignore=left_out)
    (place / "lib" / f"python{minor}" / "site-packages").mkdir()
    (place / "bin").mkdir()
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy(library, place / "lib" / library.name, follow_symlinks=False)
    program = (prefix / "bin" / f"python{minor}").read_bytes()
    built_for, here = f"{prefix}/lib".encode() + b"\0", b"$ORIGIN/../lib\0"
    if built_for in program:  # where it looks for its own library
        if len(here) > len(built_for):
            raise StopError(
                f"{python} cannot be copied: move it to a folder with a longer name, or make it readable for {USER}"
            )
        program = program.replace(built_for, here.ljust(len(built_for), b"\0"))
    copy = place / "bin" / f"python{minor}"
    copy.write_bytes(program)
    copy.chmod(0o755)
    (place / "bin/python3").symlink_to(copy.name)
    return place / "bin"
