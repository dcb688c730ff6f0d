"""The agent that ``transcript-store demo`` kills: it logs a conversation, step by step, and acknowledges each step.

What it does follows from the seed and the number of the round alone, so the one who kills it knows, without being told,
what every acknowledged step stored and what the step after that was about to store.

It says on its standard output ``ready`` before it opens the conversation, and ``done STEP MICROSECONDS`` for each step
after the store's call returned: one small write to a pipe, which is whole or absent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from random import Random
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple

from transcript_store import ConversationStore

Message = dict[str, Any]


class Step(NamedTuple):
    """One call on the store: ``append_message``, ``append_messages``, or a replace that keeps the ``kept`` last messages."""

    call: Literal["append", "batch", "replace"]
    messages: list[Message]
    kept: int = 0

    @property
    def is_small(self) -> bool:
        """Whether this is the everyday step whose latency is measured: one message of at most 4,000 characters."""
        return self.call == "append" and len(self.messages[0]["content"]) <= 4000

    @property
    def is_large(self) -> bool:
        """Whether this takes the store long enough to be killed in the middle of it."""
        return self.call == "replace" or len(self.messages) * len(self.messages[0]["content"]) > 1_000_000

    def applied(self, messages: list[Message]) -> list[Message]:
        """The messages of the conversation after this step."""
        if self.call == "replace":
            return self.messages + messages[max(0, len(messages) - self.kept) :]
        return messages + self.messages


def steps(seed: int, round_number: int) -> Iterator[Step]:
    """What the agent does in a round, without end."""
    random = Random(f"{seed}/{round_number}")  # noqa: S311 (no secret)
    number = 0

    def message(characters: int) -> Message:
        text = f"round {round_number}, step {number}: naïve \u2028 „{random.randbytes(characters // 2).hex()}“"
        return {"role": random.choice(("user", "assistant")), "content": text}

    while True:
        number += 1
        draw = random.random()
        if draw < 0.72:
            yield Step("append", [message(random.randint(2, 3000))])
        elif draw < 0.82:
            yield Step("append", [message(random.randint(20_000, 200_000))])
        elif draw < 0.92:
            yield Step("batch", [message(random.randint(2, 5000)) for _ in range(random.randint(2, 20))])
        elif draw < 0.97:
            yield Step("batch", [message(random.randint(500_000, 1_000_000)) for _ in range(random.randint(2, 6))])
        else:
            yield Step("replace", [message(1000)], kept=random.randint(0, 20))


def work(directory: str, seed: int, round_number: int, say: Callable[[str], object]) -> None:
    """Do the steps of a round until killed."""
    say("ready")
    with ConversationStore(directory) as conversation:
        conversation.load_or_initialize(model="demo")
        for number, step in enumerate(steps(seed, round_number), 1):
            if step.call == "replace":
                kept = conversation.get_messages(last=step.kept)
            began = perf_counter_ns()
            if step.call == "append":
                conversation.append_message(step.messages[0])
            elif step.call == "batch":
                conversation.append_messages(step.messages)
            else:
                conversation.replace_transcript(step.messages + kept)
            say(f"done {number} {(perf_counter_ns() - began) // 1000}")


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), lambda line: os.write(1, f"{line}\n".encode()))
