"""The messages to measure with: what a coding agent's conversation holds, the same in every run.

Sizes are log-normal and average about 1.7 KB encoded; one in a thousand is large, every second of those an image. Four in
ten are tool calls, four in ten their results, the rest is text of the user's and the model's. One in five is not plain ASCII.
"""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from typing import Any

SEED = 20261121
_MEDIAN_CHARACTERS, _SIGMA = 590, 1.1
_LARGEST_CHARACTERS = 200_000
_LARGE_EVERY = 1000

_WORDS = (
    *("the", "file", "of", "test", "that", "is", "in", "we", "return", "value", "error", "line", "when", "it", "not"),
    *("for", "name", "with", "from", "this", "should", "default", "record", "path", "which", "call", "before", "after"),
    *("write", "read", "open", "sync", "store", "message", "index", "retry", "because", "first", "last", "function"),
)
_CODE = (
    "    if value is None:\n        return default\n",
    '    raise ValueError(f"no such name: {name!r}")\n',
    "for (const [key, value] of Object.entries(input)) {\n\tresult[key] ??= value;\n}\n",
    '  "scripts": {"build": "tsc -p .", "test": "vitest --run"},\n',
    "$ git log --oneline -3\n",
    "============================= 214 passed in 8.31s =============================\n",
    "src/store/log.py:184: error: Incompatible return value type [return-value]\n",
)
_TYPOGRAPHY = ("— ", "“quoted” ", "✓ ", "naïve ", "→ ", "日本語 ", "🙂 ")


def messages(*, images: bool = True) -> Iterator[dict[str, Any]]:
    """Messages without end, in the order of a conversation; what would be an image is large text without ``images``."""
    rng = random.Random(SEED)
    pool = _text_pool(rng)
    number = 0
    while True:
        yield {"role": "user", "content": _text(rng, pool)}
        for _ in range(rng.choice((1, 2, 3, 3, 5, 8))):
            number += 1
            call_id = f"toolu_{rng.getrandbits(96):024x}"
            large = number % (_LARGE_EVERY // 3) == 0
            yield {"role": "assistant", "content": [*_thought(rng, pool), _tool_call(rng, pool, call_id)]}
            result = _tool_result(rng, pool, call_id, large=large)
            if images and number % (_LARGE_EVERY // 3 * 2) == 0:
                result["content"] = _image(number)
            yield {"role": "user", "content": [result]}
        yield {"role": "assistant", "content": [{"type": "text", "text": _text(rng, pool)}]}


def some_messages(count: int, *, images: bool = True) -> list[dict[str, Any]]:
    """The first so many of the mix."""
    return list(islice(messages(images=images), count))


def text_messages(count: int, encoded_bytes: int) -> list[dict[str, Any]]:
    """Messages that differ and hold plain text, all of one size."""
    rng = random.Random(SEED)
    words = " ".join(rng.choices(_WORDS, k=encoded_bytes))
    length = encoded_bytes - len('{"role":"user","content":""}')
    starts = [rng.randrange(len(words) - length) for _ in range(count)]
    return [{"role": "user", "content": words[start : start + length]} for start in starts]


def _text_pool(rng: random.Random) -> str:
    """Half a million characters of prose and code to cut from."""
    parts: list[str] = []
    for block in range(150):
        for _ in range(60):
            parts.append(" ".join(rng.choices(_WORDS, k=rng.randint(5, 12))) + rng.choice((". ", ", ", "; ", ".\n\n")))
            if rng.random() < 0.25:
                parts.append(rng.choice(_CODE))
            if block % 6 == 0 and rng.random() < 0.2:
                parts.append(rng.choice(_TYPOGRAPHY))
    return "".join(parts)


def _text(rng: random.Random, pool: str, share: float = 1.0) -> str:
    length = min(int(rng.lognormvariate(0, _SIGMA) * _MEDIAN_CHARACTERS * share) + 1, _LARGEST_CHARACTERS)
    return _cut(rng, pool, length)


def _cut(rng: random.Random, pool: str, length: int) -> str:
    start = rng.randrange(len(pool) - length)
    return pool[start : start + length]


def _thought(rng: random.Random, pool: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": _text(rng, pool, 0.4)}] if rng.random() < 0.6 else []


def _tool_call(rng: random.Random, pool: str, call_id: str) -> dict[str, Any]:
    path = f"src/{rng.choice(_WORDS)}/{rng.choice(_WORDS)}_{rng.randrange(100)}.py"
    kind = rng.randrange(4)
    given: dict[str, Any]
    if kind == 0:
        name, given = "edit_file", {"path": path, "old": _text(rng, pool, 0.5), "new": _text(rng, pool, 0.8)}
    elif kind == 1:
        name, given = "read_file", {"path": path, "offset": rng.randrange(2000), "limit": 200}
    elif kind == 2:
        name, given = "shell", {"command": _cut(rng, pool, rng.randint(20, 200)), "timeout": 120.0, "background": False}
    else:
        name, given = "search", {"pattern": rng.choice(_WORDS), "globs": ["*.py", "*.md"], "limit": None}
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def _tool_result(rng: random.Random, pool: str, call_id: str, *, large: bool) -> dict[str, Any]:
    content: Any
    if large:
        content = _cut(rng, pool, rng.randint(40_000, _LARGEST_CHARACTERS))
    elif rng.random() < 0.2:
        content = [
            {"path": f"src/{rng.choice(_WORDS)}.py", "line": rng.randrange(900), "text": _cut(rng, pool, 80)}
            for _ in range(rng.randint(1, 25))
        ]
    else:
        content = [{"type": "text", "text": _text(rng, pool, 2.2)}]
    return {"type": "tool_result", "tool_use_id": call_id, "is_error": rng.random() < 0.05, "content": content}


def _image(number: int) -> list[dict[str, Any]]:
    """By a die of its own: the other messages are the same with images and without."""
    rng = random.Random(SEED + number)
    data = b64encode(rng.randbytes(rng.randint(30_000, _LARGEST_CHARACTERS * 3 // 4))).decode()
    return [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]
