"""The table of attacks of docs/encryption.md on the command line: each attack, then each command that shows content.

What a library refuses a command could still show, if it read the files in a way of its own; a search does so. Thus each command is run, with the key, on
the files as somebody left them who lacks it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers import Cli
from tests.sealed.attacks import ATTACKS, OTHERS, forge_the_archive, make_it_plain
from tests.sealed.conversations import CANARY, FOLDER, KEY, sealed
from transcript_store.testing import SimulatedFileSystem

COMMANDS = [
    ("verify", "{}"),
    ("show", "{}"),
    ("show", "{}", "--json"),
    ("show", "{}", "--generation", "0"),
    ("export", "{}", "--to", "jsonl"),
    ("export", "{}", "--to", "markdown"),
    ("view", "{}", "--output", "-"),
    ("fork", "{}"),
    ("search", CANARY, "{}/.."),
    ("search", "forged", "{}/.."),
]
SEES_THE_LIVE_ONE = {forge_the_archive}
"""What was done to an earlier generation is met by whoever reads it, and by ``verify``."""


def written(disk: SimulatedFileSystem, below: Path) -> str:
    """The files of a simulated disk on a real one; returns the conversation's folder."""
    for path, content in disk.tree().items():
        file = below / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if content is not None:
            file.write_bytes(content)
            file.chmod(0o600)
    return str(below / FOLDER[1:])


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("attack", [*ATTACKS, *OTHERS], ids=lambda attack: attack.__name__)
def test_each_attack_meets_each_command(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Callable[[SimulatedFileSystem], None]
) -> None:
    """P17: an error of ours in one line and the exit code 1, nothing forged as if it were genuine, and no text of the content in an error; a search says
    that it did not read it. What is printed before a damaged line is met is genuine.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    key = tmp_path / "key"
    key.write_text(KEY.hex() + "\n")
    key.chmod(0o600)
    disk = sealed(replaced=attack in OTHERS)
    attack(disk)
    directory = written(disk, tmp_path)
    refused = 0
    for command in COMMANDS:
        code, out, err = cli(*(word.replace("{}", directory) for word in command), "--key-file", str(key))
        where = f"{' '.join(command)}: {code}, {out!r:.500}, {err!r:.500}"
        assert CANARY not in err, where
        assert "Traceback" not in err, where
        if command[0] == "search":
            # A library may have plain ones beside sealed ones, and a search shows both.
            assert "forged" not in out or attack is make_it_plain, where
            if attack in SEES_THE_LIVE_ONE or attack is make_it_plain:
                continue
            assert code in (0, 1, 3), where  # 3: a search that left something out
            assert CANARY not in out.replace(f"for {CANARY}", ""), where
            assert "not opened by the key that was given: `verify` says why" in err, where
            continue
        assert "forged" not in out, where
        if attack in SEES_THE_LIVE_ONE and command[0] != "verify" and "--generation" not in command:
            assert code == 0, where
            continue
        assert code == 1, where
        refused += 1
        if command[0] != "verify":
            assert len(err.splitlines()) == 1, where
    assert refused >= 2
