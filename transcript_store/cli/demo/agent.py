"""The agent that ``transcript-store demo`` kills: it logs a conversation, step by step, and acknowledges each step.

What it does follows from the seed and the number of the round. So whoever kills it knows, without being told, what every
acknowledged step stored, and what the step after that was about to store.

It says on its standard output ``ready`` before it opens the conversation, and ``done STEP MICROSECONDS`` for each step
after the store's call returned: one small write to a pipe, which is whole or absent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from random import Random
from time import perf_counter_ns
from typing import Any, NamedTuple

from transcript_store import ConversationStore

Message = dict[str, Any]


class Step(NamedTuple):
    """One call on the store: an append of these messages, as one, or a replace that keeps the last ``kept`` behind them."""

    messages: list[Message]
    kept: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether this is the everyday step whose latency is measured: one message of at most 4,000 characters."""
        return self.kept is None and len(self.messages) == 1 and len(self.messages[0]["content"]) <= 4000

    @property
    def is_large(self) -> bool:
        """Whether this takes the store long enough to be killed in the middle of it."""
        return self.kept is not None or sum(len(message["content"]) for message in self.messages) > 1_000_000

    def do(self, conversation: ConversationStore) -> None:
        """Make the call."""
        if self.kept is not None:
            conversation.replace_transcript(self.messages + conversation.get_messages(last=self.kept))
        elif len(self.messages) == 1:
            conversation.append_message(self.messages[0])
        else:
            conversation.append_messages(self.messages)

    def applied(self, messages: list[Message]) -> list[Message]:
        """The messages of the conversation after this step."""
        if self.kept is None:
            return messages + self.messages
        return self.messages + messages[max(0, len(messages) - self.kept) :]


_KINDS = (  # of a hundred steps so many: at most so many messages, of so many characters
    (72, 1, (2, 3000)),
    (10, 1, (20_000, 200_000)),
    (10, 20, (2, 5000)),
    (5, 6, (500_000, 1_000_000)),
    (3, 1, (1000, 1000)),  # a replace
)


def steps(seed: int, round_number: int) -> Iterator[Step]:
    """What the agent does in a round, without end."""
    random = Random(f"{seed}/{round_number}")  # noqa: S311 (no secret)
    weights = [weight for weight, *_ in _KINDS]
    while True:
        ((weight, most, characters),) = random.choices(_KINDS, weights)
        texts = [random.randbytes(random.randint(*characters) // 2).hex() for _ in range(random.randint(1, most))]
        messages = [
            {"role": random.choice(("user", "assistant")), "content": f"naïve \u2028 „{text}“"} for text in texts
        ]
        yield Step(messages, random.randint(0, 20) if weight == 3 else None)


def work(directory: str, seed: int, round_number: int, say: Callable[[str], object]) -> None:
    """Do the steps of a round until killed."""
    say("ready")
    with ConversationStore(directory) as conversation:
        conversation.load_or_initialize(provider="demo", model="demo")
        for number, step in enumerate(steps(seed, round_number), 1):
            began = perf_counter_ns()
            step.do(conversation)
            say(f"done {number} {(perf_counter_ns() - began) // 1000}")


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), lambda line: os.write(1, f"{line}\n".encode()))
