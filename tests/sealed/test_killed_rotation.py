"""A rotation that is killed with SIGKILL somewhere, again and again: K1 and K2 of ``_conversation/key_changes.py``, P17.

What opens a key file is judged with nothing of ours: AES-GCM over what stands in it. By hand, a hundred kills in ten thousand conversations:

    python -m tests.sealed.test_killed_rotation --conversations 10000 --kills 100 FOLDER
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from transcript_store import ConversationLibrary

KEYS = bytes(32), bytes([1]) * 32
ROTATE = """
import sys
from transcript_store import ConversationLibrary
new, old = (bytes.fromhex(argument) for argument in sys.argv[2:])
library = ConversationLibrary(sys.argv[1], encryption_key=new, retired_keys=[old])
print("begins", flush=True)
done = library.rotate_key()
assert not done.skipped, done.skipped
print(len(done.rotated), len(done.already_current), flush=True)
"""


def made(folder: Path, count: int) -> list[str]:
    """A library of so many sealed conversations."""
    with ConversationLibrary(folder, encryption_key=KEYS[0]).group() as group:
        return [group.add(messages=[{"role": "user", "content": f"message {number}"}]) for number in range(count)]


def opens_with(key_file: Path) -> int:
    """Which of the two keys opens a key file: exactly one does."""
    members = json.loads(key_file.read_bytes())
    wrapped, found = base64.b64decode(members["wrapped"]), []
    for number, key in enumerate(KEYS):
        try:
            place = b"transcript-store/1/key/" + members["key_id"].encode()
            data_key = AESGCM(key).decrypt(wrapped[:12], wrapped[12:], place)
        except InvalidTag:
            continue
        assert len(data_key) == 32
        found.append(number)
    assert len(found) == 1, f"{key_file}: opens with keys {found}"
    return found[0]


def rotation(folder: Path, new: int) -> subprocess.Popen[str]:
    keys = KEYS[new].hex(), KEYS[1 - new].hex()
    return subprocess.Popen([sys.executable, "-c", ROTATE, folder, *keys], stdout=subprocess.PIPE, text=True)


def begun(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == "begins\n"


def killed_again_and_again(
    folder: Path, ids: list[str], kills: int, chance: random.Random, say: Callable[[object], object] = lambda _: None
) -> dict[str, int]:
    """Rotate to and fro; kill each rotation somewhere, look, let the next one finish it, and look."""
    with rotation(folder, 1) as child:
        begun(child)
        started = time.perf_counter()
        assert child.wait() == 0
        whole_seconds = time.perf_counter() - started
    goal, counted = 0, {"kills": 0, "in the middle": 0, "before the first": 0, "behind the last": 0}
    while counted["kills"] < kills:
        with rotation(folder, goal) as child:
            begun(child)
            try:
                child.wait(chance.random() * whole_seconds)  # what is waited for is a place, not a result
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
        if child.returncode == -signal.SIGKILL:
            done = sum(opens_with(folder / one / "key.json") == goal for one in ids)
            counted["kills"] += 1
            counted["before the first" if not done else "behind the last" if done == len(ids) else "in the middle"] += 1
            with rotation(folder, goal) as child:
                begun(child)
                assert child.stdout is not None
                rotated, already = map(int, child.stdout.read().split())
            assert (child.returncode, rotated, already) == (0, len(ids) - done, done)
            say(counted)
        assert {opens_with(folder / one / "key.json") for one in ids} == {goal}
        assert not list(folder.glob("*/.tmp-*"))
        goal = 1 - goal
    library = ConversationLibrary(folder, encryption_key=KEYS[1 - goal])
    for number, one in list(enumerate(ids))[:: max(1, len(ids) // 100)]:
        with library.open(one) as store:
            assert store.get_messages() == [{"role": "user", "content": f"message {number}"}]
    return counted


@pytest.mark.parametrize(
    ("conversations", "kills"), [(30, 1), pytest.param(600, 10, marks=pytest.mark.long, id="600-10")]
)
def test_a_rotation_that_is_killed_anywhere_is_finished_by_the_next(
    tmp_path: Path, conversations: int, kills: int
) -> None:
    """K1, K2: before that each key file opens with exactly one of the two keys, and the next one counts them as they are."""
    ids = made(tmp_path / "library", conversations)
    counted = killed_again_and_again(tmp_path / "library", ids, kills, random.Random(kills))
    assert counted["kills"] == kills


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=100)
    given = parser.parse_args()
    ids = made(given.folder, given.conversations)
    print(killed_again_and_again(given.folder, ids, given.kills, random.Random(1), lambda one: print(one, flush=True)))
