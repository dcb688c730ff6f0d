"""The judge of storms on real servers: were the answers that the writers of one conversation got true?

A writer says in one line each what it was told, after it was told. Run as a module, this is such a writer:
``python -m tests.backends.judging URL ID NAME`` takes the conversation over again and again, and appends, until it is killed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

from transcript_store._os import filesystem
from transcript_store.backends import (
    Backend,
    BackendConversation,
    BackendError,
    ConversationTakenOverError,
    PostgresBackend,
)

WAITS_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5) + (1.0,) * 60


class Waits:
    """The machine, with another way to wait."""

    def __init__(self, wait: Callable[[float], object]) -> None:
        self.wait = wait

    def __getattr__(self, name: str) -> Any:
        return getattr(filesystem.REAL, name)


def placed(
    backend: Backend, id: str | None = None, *, sleep: Callable[[float], object] | None = None, **options: Any
) -> BackendConversation:
    """A conversation that each load takes over; a new one without an id."""
    machine: Any = None if sleep is None else Waits(sleep)
    return BackendConversation(backend, id or str(uuid4()), take_over=True, file_system=machine, **options)


class Verdict(NamedTuple):
    """What a storm came to. The last three are what must not be."""

    acknowledged: int
    takeovers: int
    lost: list[str]
    twice: list[str]
    wrong: list[str]


def writes(backend: Backend, id: str, name: str) -> None:
    """Take over, append some, and repeat, reporting each answer."""
    random = Random(name)
    log = placed(backend, id, holder=name, waits_seconds=WAITS_SECONDS)
    count = 0
    while True:
        try:
            log.load()
        except BackendError:
            continue
        read = len(log.get_messages())
        _say(f"claim {log.epoch} {read}")
        for _ in range(random.randrange(1, 12)):
            texts = [f"{name}.{count + n}" for n in range(random.choice([1, 1, 1, 3]))]
            count += len(texts)
            try:
                log.append_messages([{"text": text, "filler": "x" * random.randrange(3000)} for text in texts])
            except ConversationTakenOverError:
                _say(f"refused {log.epoch} {' '.join(texts)}")
                break
            except BackendError as error:
                _say(f"{'unknown' if error.outcome == 'unknown' else 'refused'} {log.epoch} {' '.join(texts)}")
            else:
                _say(f"stored {log.epoch} {' '.join(texts)}")


def _say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def judged(backend: Backend, id: str, said: list[tuple[str, str]]) -> Verdict:
    """Hold what writers said, each line with the writer's name, to what is stored (R1, R3, R4, R5); append at the end."""
    log = placed(backend, id, holder="judge")
    log.load()
    final = [message["text"] for message in log.get_messages()]
    position = {text: index for index, text in enumerate(final)}
    stored: list[tuple[str, int, str]] = []
    claims: list[tuple[int, int]] = []
    wrong: list[str] = []
    for writer, line in said:
        kind, epoch, *rest = line.split()
        if kind == "claim":
            claims.append((int(epoch), int(rest[0])))
        elif kind == "stored":
            stored += [(writer, int(epoch), text) for text in rest]
        elif kind == "refused":
            wrong += [f"R4: {text} was refused, and is stored" for text in rest if text in position]
    lost = [text for _, _, text in stored if text not in position]
    twice = [text for text, times in Counter(final).items() if times > 1]
    last: dict[str, int] = {}
    for writer, _, text in stored:
        if (at := position.get(text, 1 << 60)) <= last.get(writer, -1):
            wrong.append(f"R5: {text} is out of order")
        last[writer] = at
    for claimed, read in claims:
        wrong += [
            f"R3: epoch {claimed} had not read {t}" for _, e, t in stored if e < claimed and position.get(t, -1) >= read
        ]
    epochs = [epoch for epoch, _ in claims]
    if len(set(epochs)) != len(epochs):
        wrong.append("two claims have one epoch")
    log.append_message({"text": "the end"})
    assert log.get_messages()[-1] == {"text": "the end"}
    return Verdict(len(stored), len(claims), lost, twice, wrong)


if __name__ == "__main__":
    url, of, name = sys.argv[1:]
    writes(PostgresBackend(url, connections=1), of, name)
