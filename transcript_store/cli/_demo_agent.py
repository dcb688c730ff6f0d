"""The agent that ``transcript-store demo`` kills: it logs a conversation, and acknowledges what is stored.

All its messages follow from the seed, and so does how many of them are appended together. So the process that kills it
knows which messages must be there, and which ones the append under way would have added.

It prints ``continues after N`` when the conversation is open, with N messages. It prints ``stored N in M`` when message N
is stored and its append took M microseconds. Each line is one small write to a pipe: it arrives whole or not at all.
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

_KINDS = (  # appends of this kind in a hundred, the most messages of one, the characters of a message
    (72, 1, (2, 3000)),
    (10, 1, (20_000, 200_000)),
    (10, 20, (2, 5000)),
    (8, 6, (500_000, 1_000_000)),  # long enough that the kill often interrupts it
)


def appended_behind(number: int, seed: int) -> list[Message]:
    """The messages of the one append that comes after message ``number``."""
    random = Random(f"{seed}/{number}")  # noqa: S311 (not a secret)
    ((_, most, characters),) = random.choices(_KINDS, [weight for weight, *_ in _KINDS])
    texts = [random.randbytes(random.randint(*characters) // 2).hex() for _ in range(random.randint(1, most))]
    return [{"role": random.choice(("user", "assistant")), "content": f"naïve \u2028 „{text}“"} for text in texts]


def work(directory: str, seed: int, say: Callable[[str], object]) -> None:
    """Append until killed."""
    with ConversationStore(directory) as conversation:
        conversation.load_or_initialize(model="demo")
        number = conversation.record_count
        say(f"continues after {number}")
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
