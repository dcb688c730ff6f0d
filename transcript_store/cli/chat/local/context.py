"""Choose the turns of a long conversation that a request carries: the newest that fit into the model's context."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

Message = dict[str, Any]

_FEWEST_TOKENS = 5
"""The fewest tokens that a message can take: those that the chat template adds to it."""
_MOST_BYTES_A_TOKEN = 8
"""The most bytes a token may have on average. Messages that would need more are left out without being counted.

Else a very long conversation would be sent to the server whole, only for its tokens to be counted.
"""


def rendered(messages: Sequence[Message]) -> str:
    """The messages in the model's template (ChatML), so that their tokens can be counted."""
    return "".join(f"<|im_start|>{message.get('role')}\n{_text(message)}<|im_end|>\n" for message in messages)


def newest_turns(
    messages: Sequence[Message], *, budget_tokens: int, count_tokens: Callable[[str], int]
) -> list[Message] | None:
    """The newest turns that together take at most ``budget_tokens``; None if the last turn alone takes more.

    A turn begins with a message of the user. Messages before the first such message belong to no turn, and are left out
    first. ``count_tokens`` counts exactly. It is not called for a conversation that is short enough in any case.
    """
    newest = len(messages) - budget_tokens // _FEWEST_TOKENS
    lengths = [len(rendered([message]).encode("utf-8", "replace")) for message in messages[max(0, newest) :]]
    if newest <= 0 and sum(lengths) <= budget_tokens:
        return list(messages)  # a token has at least one byte, so no more tokens than bytes
    room = bisect_left(list(accumulate(reversed(lengths))), budget_tokens * _MOST_BYTES_A_TOKEN)
    first = len(messages) - max(room, 1)
    starts = sorted({0, *(place for place, message in enumerate(messages) if message.get("role") == "user")})
    starts = [place for place in starts if place >= first] or starts[-1:]
    # The later a request starts, the fewer tokens it takes: a binary search counts only a few of the possible starts.
    fits = bisect_left(starts, True, key=lambda place: count_tokens(rendered(messages[place:])) <= budget_tokens)
    return list(messages[starts[fits] :]) if fits < len(starts) else None


def _text(message: Message) -> str:
    content = message.get("content")
    rest = {name: value for name, value in message.items() if name not in ("role", "content") and value}
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    return text + (json.dumps(rest, ensure_ascii=False) if rest else "")
