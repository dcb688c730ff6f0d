"""Keys on the command line: from a file or the environment, never from an argument; ten mistakes of a person in a hurry.

What is held (P17): a mistake is told in one line that names the file, with the way out; no text of a key is ever printed, also
not one that stands where a name belongs.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, conversation

VARIABLE = "TRANSCRIPT_STORE_KEY"
CANARY = "c0ffee" * 10  # 60 hex digits: a key of which the end is missing


def test_a_new_key_is_a_file_of_its_own(cli: Cli, tmp_path: Path) -> None:
    """0600 whatever the umask, another each time, and what to do with it is said."""
    file = tmp_path / "my.key"
    code, out, err = cli("new-key", str(file))
    assert (code, err) == (0, "")
    assert out == f"{file}: keep a copy of this key apart; without it, what it seals cannot be read\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(bytes.fromhex(file.read_text())) == 32
    assert file.read_text().strip() not in out
    assert cli("new-key", str(tmp_path / "other")).code == 0
    assert (tmp_path / "other").read_text() != file.read_text()


def test_a_new_key_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    """A key that is there, a file, a link, a folder: each stays, and each is told."""
    file, link, folder = tmp_path / "my.key", tmp_path / "link", tmp_path / "folder"
    assert cli("new-key", str(file)).code == 0
    before = file.read_bytes()
    link.symlink_to(tmp_path / "nowhere")
    folder.mkdir()
    for taken in (file, link, folder):
        code, out, err = cli("new-key", str(taken))
        assert (code, out) == (1, "")
        assert str(taken) in err
        assert err.count("\n") == 1
    assert file.read_bytes() == before
    assert not (tmp_path / "nowhere").exists()


def test_a_key_beside_what_it_opens(cli: Cli, tmp_path: Path) -> None:
    """Whoever copies a library would have the key too: that is said."""
    conversation(tmp_path / "chats" / "today", [{"role": "user", "content": "hi"}])
    for beside in (tmp_path / "chats", tmp_path / "chats" / "today"):
        code, _, err = cli("new-key", str(beside / "my.key"))
        assert code == 0
        assert "it is next to conversations" in err


def _mistakes(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """A file of each kind that is no key, by its name: what is said of it, and the way out."""
    files = {
        "missing": ("there is no such key file", "`transcript-store new-key FILE` makes one"),
        "folder": ("this is a folder; name the key file in it", "name the key file in it"),
        "open": ("other users may read this key (mode 644)", "chmod 600 it"),
        "short": ("this is neither, at 60 bytes", "`transcript-store new-key FILE` makes one"),
        "empty": ("this is neither, at 0 bytes", "`transcript-store new-key FILE` makes one"),
        "pem": ("this is neither, at 4,096 bytes", "`transcript-store new-key FILE` makes one"),
    }
    (tmp_path / "folder").mkdir()
    contents = {"open": "0" * 64, "short": CANARY, "empty": "", "pem": "-----BEGIN PRIVATE KEY-----\n" + CANARY * 200}
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644 if name == "open" else 0o600)
    return files


COMMANDS = [
    ("record", "talk"),
    ("show", "talk"),
    ("head", "talk"),
    ("generations", "talk"),
    ("rename", "talk", "title"),
    ("fork", "talk"),
    ("export", "talk", "--to", "jsonl"),
    ("import", "talk", "--into", "library"),
    ("snapshot", "list", "--store", "s"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_file_that_is_no_key(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """By option and by variable: one line, which names the file and the way out, and nothing was written."""
    monkeypatch.chdir(tmp_path)
    mistakes = _mistakes(tmp_path)
    before = sorted(os.listdir())
    for name, (reason, hint) in mistakes.items():
        file = str(tmp_path / name)
        for options in (("--key-file", file), ()):
            if not options:
                monkeypatch.setenv(VARIABLE, file)
            code, out, err = cli(*command, *options)
            monkeypatch.delenv(VARIABLE, raising=False)
            assert (code, out) == (1, "")
            assert f"{file}: " in err
            assert reason in err
            assert hint in err
            assert err.count("\n") == 1
            assert CANARY not in err
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("text", [CANARY, "hunter2", "chats.key", "/" + "Ab1+" * 10 + "xy=", "0" * 65])
def test_a_variable_that_is_no_key_is_not_repeated(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A key with a typing mistake, a password, base64 that begins like a path: none is taken for a file and printed."""
    path = conversation(tmp_path / "c", [{"role": "user", "content": "hi"}])
    monkeypatch.setenv(VARIABLE, text)
    code, out, err = cli("show", path)
    assert (code, out) == (1, "")
    assert err.startswith(f"transcript-store: {VARIABLE}: a key is 64 hex digits, and a path starts with")
    assert text not in err


def test_no_key_whatever_the_variable_is(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--no-key` reads what is plain in a shell whose variable is for something else; an empty variable is no key."""
    path = conversation(tmp_path / "c", [{"role": "user", "content": "hi"}])
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing"))
    assert cli("head", path).code == 1
    assert cli("head", path, "--no-key").code == 0
    monkeypatch.setenv(VARIABLE, "")
    assert cli("head", path).code == 0


def test_a_key_through_a_pipe(cli: Cli, tmp_path: Path) -> None:
    """`--key-file <(pass show key)`: a pipe has permissions of its own, and is read once."""
    read, write = os.pipe()
    os.write(write, b"0" * 64 + b"\n")
    os.close(write)
    try:
        code, out, err = cli("snapshot", "list", "--store", str(tmp_path), "--key-file", f"/dev/fd/{read}")
    finally:
        os.close(read)
    assert (code, out, err) == (0, "", "")
