"""The agent that ``transcript-store demo`` kills: it logs a conversation, and acknowledges what is stored.

What it logs follows from the seed: message 1, message 2 and so on, some of them together in one append. So whoever kills it knows,
without being told, what must be there, and what the append under way would have added.

It says on its standard output ``goes on behind N`` when the conversation is open, and ``stored N in M`` when message N is stored
and its append took M microseconds: one small write to a pipe, which is whole or absent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from random import Random
from time import perf_counter_ns
from typing import Any

from transcript_store import ConversationStore

Message = dict[str, Any]

_KINDS = (  # of a hundred appends so many: at most so many messages, each of so many characters
    (72, 1, (2, 3000)),
    (10, 1, (20_000, 200_000)),
    (10, 20, (2, 5000)),
    (8, 6, (500_000, 1_000_000)),  # takes long enough to be killed in the middle of it
)


def appended_behind(number: int, seed: int) -> list[Message]:
    """The messages that are appended together behind message ``number``."""
    random = Random(f"{seed}/{number}")  # noqa: S311 (no secret)
    ((_, most, characters),) = random.choices(_KINDS, [weight for weight, *_ in _KINDS])
    texts = [random.randbytes(random.randint(*characters) // 2).hex() for _ in range(random.randint(1, most))]
    return [{"role": random.choice(("user", "assistant")), "content": f"naïve \u2028 „{text}“"} for text in texts]


def work(directory: str, seed: int, say: Callable[[str], object]) -> None:
    """Append until killed."""
    with ConversationStore(directory) as conversation:
        conversation.load_or_initialize(model="demo")
        number = conversation.record_count
        say(f"goes on behind {number}")
        while True:
            messages = appended_behind(number, seed)
            began = perf_counter_ns()
            if len(messages) == 1:
                conversation.append_message(messages[0])
            else:
                conversation.append_messages(messages)
            number += len(messages)
            say(f"stored {number} in {(perf_counter_ns() - began) // 1000}")


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), lambda line: os.write(1, f"{line}\n".encode()))
