"""Writers, each a process, that take a conversation over from one another on a real server until they are killed.

A writer says what it is told, a line each: ``claimed EPOCH COUNT DIGEST`` (how many texts it has read, and their digest), ``try TEXT``,
``stored EPOCH TEXT``, ``refused TEXT``, ``unknown TEXT``. ``Storm`` listens, kills, and judges. (Run as a program, the file is a writer.)
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from tests.backends.judging import placed
from transcript_store.backends import BackendConversation, BackendError, ConversationTakenOverError, ObjectStoreBackend


def digest(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def texts(log: BackendConversation) -> list[str]:
    return [message["text"] for message in log.get_messages()]


def write_until_killed(url: str, options: dict[str, Any], id: str, name: str, seed: int, tidy: bool) -> None:
    random = Random(seed)
    log = placed(ObjectStoreBackend(url, **options), id, holder=name, pack_each=20)
    number = 0
    while True:
        with suppress(BackendError):
            log.load()
            read = texts(log)
            say("claimed", log.epoch, len(read), digest(read))
            for _ in range(random.randrange(1, 12)):
                number += 1
                text = f"{name}.{number}"
                say("try", text)
                try:
                    log.append_message({"text": text})
                except ConversationTakenOverError:
                    say("refused", text)
                    break
                except BackendError as error:
                    say("unknown" if error.outcome == "unknown" else "refused", text)
                else:
                    say("stored", log.epoch, text)
                if random.random() < 0.1:
                    with suppress(ConversationTakenOverError):
                        log.pack(tidy=tidy)
            if random.random() < 0.3:
                log.close()
        time.sleep(random.random() / 20)  # the others come in


def say(*what: object) -> None:
    os.write(1, " ".join(map(str, what)).encode() + b"\n")


class Storm:
    """So many writers at the same time, on one conversation, which exists; what they said, and how often they were killed."""

    def __init__(self, url: str, options: dict[str, Any], id: str, *, writers: int = 3, tidy: bool = False) -> None:
        self.url, self.options, self.id, self.tidy = url, options, id, tidy
        self.said: list[tuple[str, list[str]]] = []
        self.kills = self._ended = 0
        self._lines: queue.Queue[tuple[str, str | None]] = queue.Queue()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._names = (f"w{number}" for number in range(10_000))
        for _ in range(writers):
            self._begin()

    def _begin(self) -> None:
        name = next(self._names)
        given = [self.url, self.options, self.id, name, len(self.said), self.tidy]
        command = [sys.executable, "-m", "tests.backends.storm", json.dumps(given)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._running[name] = process

        def listen() -> None:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    self._lines.put((name, line.rstrip("\n")))
            self._lines.put((name, None))

        threading.Thread(target=listen, daemon=True).start()

    def until(self, stored: int, *, kill_each: int, meanwhile: dict[int, Callable[[], None]]) -> None:
        """Until so many texts were acknowledged: kill a writer at each so many, and do what is due meanwhile. Then kill all."""
        random, count = Random(self.id), 0
        while count < stored:
            if self._hear(240) != "stored":
                continue
            count += 1
            if act := meanwhile.get(count):
                act()
            if count % kill_each == 0:
                self._kill(random.choice(sorted(self._running)))
                self._begin()
        for each in sorted(self._running):
            self._kill(each)
        while self._ended < self.kills:
            self._hear(60)

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()
        self.kills += 1

    def _hear(self, seconds: float) -> str:
        name, line = self._lines.get(timeout=seconds)
        if line is None:
            assert name not in self._running, f"{name} ended by itself, and said why on the terminal"
            self._ended += 1
            return "ended"
        words = line.split()
        self.said.append((name, words))
        return words[0]

    def judge(self, final: list[str]) -> dict[str, int]:
        """What was promised, held to what the writers were told; returns the figures."""
        told: dict[str, list[list[str]]] = {}
        for _, (kind, *rest) in self.said:
            told.setdefault(kind, []).append(rest)
        places = {text: index for index, text in enumerate(final)}
        stored = [(int(epoch), text) for epoch, text in told["stored"]]
        assert len(places) == len(final), "R5: a message stands twice"
        lost = [text for _, text in stored if text not in places]
        assert not lost, f"R1: acknowledged and lost: {lost}"
        assert set(final) <= {text for (text,) in told["try"]}, "R7: somebody else's message"
        refused = [text for (text,) in told.get("refused", ()) if text in places]
        assert not refused, f"R4: refused, and stored: {refused}"
        for writer in {text.partition(".")[0] for text in final}:
            order = [places[text] for _, text in stored if text.startswith(f"{writer}.")]
            assert order == sorted(order), f"R5: {writer}'s messages are out of order"
        for epoch, count, read in told["claimed"]:
            assert digest(final[: int(count)]) == read, f"R9: epoch {epoch} read what is no beginning"
            unread = [text for before, text in stored if before < int(epoch) and places[text] >= int(count)]
            assert not unread, f"R3: epoch {epoch} was claimed without {unread}"
        return {
            "claims in storms on a server": len(told["claimed"]),
            "writers killed in storms on a server": self.kills,
            "messages acknowledged in storms on a server": len(stored),
            "messages refused in storms on a server": len(told.get("refused", ())),
        }


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        write_until_killed(*json.loads(sys.argv[1]))
