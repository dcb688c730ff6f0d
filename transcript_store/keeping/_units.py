"""A keeper as a service of the user: a unit of systemd, or an agent of launchd. This module only makes text; it starts nothing."""

from __future__ import annotations

import os
import plistlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transcript_store.sources import session_folders

UNIT = "transcript-store-keep.service"
AGENT = "io.github.transcript-store.keep"
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./%$-]+")
_ENVIRONMENT = ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "TRANSCRIPT_STORE_KEY")
"""Variables that change where a keeper reads and writes, beside those of the programs. The key only as a file's path."""


@dataclass(frozen=True, slots=True)
class KeepService:
    """A service of the user: the path and content of its file, and the commands that start and end it."""

    kind: str
    """``systemd`` or ``launchd``."""
    path: str
    text: str
    start: tuple[tuple[str, ...], ...]
    """The commands that start it now and whenever the user logs in, one after the other."""
    stop: tuple[tuple[str, ...], ...]
    """Those that end it, before the file is removed."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""


def service_for(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    platform: str = sys.platform,
    uid: int | None = None,
) -> KeepService:
    """The service that runs a command, on this machine or on one of another platform.

    A service does not have the variables of a shell: those that say where programs keep sessions, and are set now, are in its file.

    Args:
        command: the program, by its absolute path, and its arguments.
        environ: the environment; this process's if None.
        platform: as ``sys.platform``.
        uid: the user's number; this process's if None.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("HOME") or os.path.expanduser("~")
    kept = {name: environ[name] for name in _names() if environ.get(name)}
    if not kept.get("TRANSCRIPT_STORE_KEY", "/").startswith(("/", "~")):
        del kept["TRANSCRIPT_STORE_KEY"]
    if platform == "darwin":
        return _agent(command, kept, home, os.getuid() if uid is None else uid)
    return _unit(command, kept, environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"))


def _names() -> list[str]:
    return [*dict.fromkeys([*(place.variable for place in session_folders() if place.variable), *_ENVIRONMENT])]


def _unit(command: Sequence[str], environment: Mapping[str, str], config: str) -> KeepService:
    lines = [
        "[Unit]",
        "Description=Keeps the sessions of AI programs in a library",
        "Documentation=man:systemd.service(5)",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={' '.join(_quoted(word.replace('$', '$$')) for word in command)}",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in environment.items()),
        "Restart=always",
        "RestartSec=30",
        "Nice=10",
        "IOSchedulingClass=idle",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    systemctl = ("systemctl", "--user")
    return KeepService(
        "systemd",
        os.path.join(config, "systemd/user", UNIT),
        "\n".join(lines),
        ((*systemctl, "daemon-reload"), (*systemctl, "enable", UNIT), (*systemctl, "restart", UNIT)),
        ((*systemctl, "disable", "--now", UNIT),),
        ("it runs while you are logged in; `loginctl enable-linger` makes it run without that",),
    )


def _quoted(word: str) -> str:
    """A word quoted for systemd, which expands ``%`` and reads the escapes of C. (In a command also ``$``.)"""
    escaped = word.replace("%", "%%")
    if _PLAIN.fullmatch(escaped):
        return escaped
    escaped = (
        escaped.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    )
    return f'"{escaped}"'


def _agent(command: Sequence[str], environment: Mapping[str, str], home: str, uid: int) -> KeepService:
    log = os.path.join(home, "Library/Logs/transcript-store-keep.log")
    text = plistlib.dumps(
        {
            "Label": AGENT,
            "ProgramArguments": list(command),
            "EnvironmentVariables": dict(environment),
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": 30,
            "ProcessType": "Background",
            "LowPriorityIO": True,
            "StandardOutPath": log,
            "StandardErrorPath": log,
        },
        sort_keys=False,
    ).decode()
    path = os.path.join(home, "Library/LaunchAgents", f"{AGENT}.plist")
    domain = f"gui/{uid}"
    return KeepService(
        "launchd",
        path,
        text,
        (("launchctl", "bootstrap", domain, path),),
        (("launchctl", "bootout", f"{domain}/{AGENT}"),),
        (f"it writes to {log}",),
    )
