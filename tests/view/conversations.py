"""Conversations for pages: one with everything a page shows, one that is hostile, and a long one."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

from transcript_store import ConversationStore

Message = dict[str, Any]


def png(width: int = 320, height: int = 120) -> str:
    """A picture as base64: bars that grow, as a chart has them."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            bar = x * 8 // width
            inside = x % (width // 8) > 8 and height - y < 14 * (bar + 1)
            rows += bytes((29, 92, 148) if inside else (245, 242, 236))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b"")
    )
    return base64.b64encode(data).decode()


OLD = "def backoff(attempt: int) -> float:\n    return 2**attempt\n"
NEW = 'def backoff(attempt: int) -> float:\n    """Seconds to wait; never more than a minute."""\n    return min(60.0, 2**attempt)\n'
PYTEST = (
    "\x1b[1m============================= test session starts ==============================\x1b[0m\n"
    "tests/test_retry.py \x1b[32m.\x1b[0m\x1b[32m.\x1b[0m\x1b[31mF\x1b[0m\n"
    "\x1b[31m\x1b[1mFAILED\x1b[0m tests/test_retry.py::test_backoff_is_bounded - assert 1024.0 <= 60.0\n"
    "\x1b[31m========================= 1 failed, 2 passed in 0.21s =========================\x1b[0m\n"
)
CLAUDE: list[Message] = [
    {
        "role": "user",
        "content": "Our retries wait for minutes after a few failures. Can you find out why, and bound it?",
    },
    {
        "role": "assistant",
        "content": [
            {
                "type": "thinking",
                "thinking": "The wait probably doubles without an end. Look at the code first.",
                "signature": "x",
            },
            {"type": "text", "text": "I'll look at how the wait is computed, and run its tests."},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "client/retry.py"}},
            {
                "type": "tool_use",
                "id": "t2",
                "name": "Bash",
                "input": {"command": "pytest -q tests/test_retry.py --color=yes", "timeout": 60},
            },
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": OLD},
            {"type": "tool_result", "tool_use_id": "t2", "content": PYTEST, "is_error": True},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {
                "type": "text",
                "text": "The wait **doubles without an end**: after ten failures it is 1,024 seconds. I'll bound it.",
            },
            {
                "type": "tool_use",
                "id": "t3",
                "name": "Edit",
                "input": {"file_path": "client/retry.py", "old_string": OLD, "new_string": NEW},
            },
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t3", "content": "The file was updated."}]},
    {
        "role": "assistant",
        "content": (
            "Done. The wait still doubles, and never exceeds a minute:\n\n"
            "| failures | before | now |\n|---|---|---|\n| 3 | 8 s | 8 s |\n| 6 | 64 s | 60 s |\n| 10 | 1,024 s | 60 s |\n\n"
            "```python\nfor attempt in range(11):\n    print(attempt, backoff(attempt))  # 1.0 to 60.0\n```\n\n"
            "Two things to know:\n\n1. `backoff()` has no jitter, so clients that fail together retry together.\n"
            "2. The limit is a constant. See [RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#name-retry-after) for `Retry-After`."
        ),
    },
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Great. This is what we see in production now:"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png()}},
        ],
    },
    {"role": "assistant", "content": "The bars grow evenly until the limit, which is what the new code does."},
]
"""Everything that a page shows of a message."""

OPENAI: list[Message] = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {
        "role": "assistant",
        "reasoning_content": "Ask the tool.",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    {"role": "assistant", "content": "It is 18 degrees in Paris."},
]
RESPONSES: list[Message] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is the weather in Paris?"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Ask the tool."}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Paris"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "18 degrees"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "It is 18 degrees in Paris."}],
    },
]
GEMINI: list[Message] = [
    {"role": "user", "parts": [{"text": "What is the weather in Paris?"}]},
    {
        "role": "model",
        "parts": [
            {"text": "Ask the tool.", "thought": True},
            {"functionCall": {"name": "weather", "args": {"city": "Paris"}}},
        ],
    },
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "18 degrees"}}}]},
    {"role": "model", "parts": [{"text": "It is 18 degrees in Paris."}]},
]
SHAPES = {"openai": OPENAI, "responses": RESPONSES, "gemini": GEMINI}
"""The same exchange as each provider has it."""

SCRIPT = "<script>document.title='RAN'</script>"
PAYLOADS = (
    SCRIPT,
    "<img src=x onerror=\"document.title='RAN'\">",
    '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
    "<svg onload=\"document.title='RAN'\"><script>document.title='RAN'</script></svg>",
    '<link rel="stylesheet" href="https://evil.example/x.css"><style>@import "https://evil.example/y.css";</style>',
    "<base href='https://evil.example/'><form action='https://evil.example/'><input autofocus onfocus=\"document.title='RAN'\"></form>",
    "<iframe srcdoc=\"<script>parent.document.title='RAN'</script>\"></iframe>",
    "![remote](https://evil.example/pixel.png)",
    "[click](javascript:document.title='RAN')",
    "[click](JaVaScRiPt&colon;document.title='RAN')",
    "[click](data:text/html,<script>parent.document.title='RAN'</script>)",
    "[click](file:///etc/passwd) [click](//evil.example/) [click](vbscript:x)",
    "<javascript:alert(1)> [ref]\n\n[ref]: javascript:alert(1)",
    "</script><script>document.title='RAN'</script>",
    "<!--<script>--><script>document.title='RAN'</script>",
    '</article></main><h1 id="conversation">forged</h1>',
    "\"><script>document.title='RAN'</script>",
    "\x1b]8;;https://evil.example/\x1b\\click me\x1b]8;;\x1b\\ \x1b[31mred\x1b[0m \x1b[2J\x07",
    "\u202eevil\u202c &#x202e;evil &#27;]8;; \u2028 \u2029 \x00",
    "```html\n<script>document.title='RAN'</script>\n```\n\n```<script>\nx\n```",
    "{{constructor.constructor('document.title=1')()}} ${document.title='RAN'}",
    "<a href=\"javascript:document.title='RAN'\" id=1 name=body>click</a>",
    "<math><mtext><table><mglyph><style><img src=x onerror=\"document.title='RAN'\"></style></mglyph></table></mtext></math>",
    "<noscript><p title=\"</noscript><img src=x onerror=document.title='RAN'>\">",
    "<a href='https://evil.example/' ping='https://evil.example/'>click</a> [click](<https://a.b/\"><img/src/onerror=x>)",
    "\ufdd0<b>\ufdd1 `</mark><script>document.title='RAN'</script>`",
    "<details open ontoggle=\"document.title='RAN'\"><template><script>1</script></template></details>",
)
"""What a transcript may say, to run something, to fetch something, to leave its place, or to look like something else."""


def _lie(data: bytes, kind: str = "image/png") -> Message:
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="document.title=1"><image href="https://evil.example/"/></svg>'


def hostile() -> list[Message]:
    """Every payload in every place: text, thinking, names, arguments, results, addresses, media."""
    messages: list[Message] = []
    for number, payload in enumerate(PAYLOADS):
        call = {
            "type": "tool_use",
            "id": f"t{number}",
            "name": payload,
            "input": {"command": payload, payload: [payload]},
        }
        edit = {"file_path": payload, "old_string": payload, "new_string": payload + "\n" + payload}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": payload, "is_error": True}
        messages += [
            {"role": "user", "content": payload},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": payload, "signature": payload},
                    {"type": "text", "text": payload},
                    call,
                    {"type": "tool_use", "id": f"e{number}", "name": "Edit", "input": edit},
                    {"type": payload, payload: payload},
                ],
            },
            {"role": "user", "content": [result, {"type": "tool_result", "tool_use_id": payload, "content": payload}]},
        ]
    lies = [
        _lie(SVG),
        _lie(SVG, "image/svg+xml"),
        _lie(SCRIPT.encode(), "text/html"),
        _lie(b"GIF7"),
        _lie(b"\x89PNG\r\n\x1a\n" + SVG),
    ]
    remote = {"type": "image", "source": {"type": "url", "url": "https://evil.example/pixel.png"}}
    scripted = {"type": "image", "source": {"type": "url", "url": "javascript:document.title='RAN'"}}
    no_base64 = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": '"><script>'}}
    return [*messages, {"role": "user", "content": [*lies, remote, scripted, no_base64]}]


def long(number: int) -> list[Message]:
    """As agents talk: a prompt, and calls with their results until the next; every third reply has Markdown and code."""
    messages: list[Message] = []
    while len(messages) < number:
        at = len(messages)
        messages.append(
            {"role": "user", "content": f"Task {at}: please look at module {at % 97}, and mend what is wrong with it."}
        )
        for step in range(4):
            call = {
                "type": "tool_use",
                "id": f"t{at}-{step}",
                "name": "Bash",
                "input": {"command": f"sed -n {step}p module{at % 97}.py"},
            }
            said = f"Step {step} of task {at}: I look at `module{at % 97}.py`, where the *needle{at}-{step}* may be."
            output = "\n".join(
                f"line {line}: some output of a program, as long as such lines are" for line in range(20)
            )
            messages += [
                {"role": "assistant", "content": [{"type": "text", "text": said}, call]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": f"t{at}-{step}", "content": output}],
                },
            ]
        code = "```python\ndef mended(value: int) -> int:\n    return value + 1  # as it should be\n```"
        messages.append(
            {"role": "assistant", "content": f"## Task {at} is done\n\nIt is **mended**:\n\n{code}\n\n- one\n- two\n"}
        )
    return messages[:number]


def store(
    directory: Path, messages: list[Message], *, extras: list[dict[str, Any] | None] | None = None, **metadata: Any
) -> str:
    """The messages as a conversation; returns its path."""
    with ConversationStore(directory) as conversation:
        conversation.initialize(messages=messages, extras=extras, **{"provider": "claude", **metadata})
    return str(directory)


def showcase(directory: Path) -> str:
    """A conversation with everything: compacted once, with events, tokens and a system prompt."""
    model = {"model": "claude-opus-4-8", "usage": {"input_tokens": 2_314, "output_tokens": 187}}
    event = {"source": {"lines": [{"n": 9, "line": {"type": "model_change", "modelId": "claude-opus-4-8"}}]}}
    start = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello! What shall we do?"}]
    times = [f"2026-03-0{2 + number // 5}T09:{10 + number * 3}:00Z" for number in range(9)]
    with ConversationStore(directory) as conversation:
        conversation.initialize(
            provider="claude",
            model="claude-opus-4-8",
            system_prompt="You are a careful engineer.",
            tools=[
                {"name": name, "description": "", "parameters": {"type": "object"}} for name in ("Read", "Bash", "Edit")
            ],
            labels={"title": "Bound the wait between retries", "cwd": "/srv/client"},
            messages=start,
            times=["2026-03-01T16:00:00Z", "2026-03-01T16:00:20Z"],
        )
        extras: list[dict[str, Any] | None] = [model if message["role"] == "assistant" else None for message in CLAUDE]
        conversation.replace_transcript([None, *CLAUDE], extras=[event, *extras], times=times)
    return str(directory)


HOSTILE_METADATA: dict[str, Any] = {
    "model": "<b>model</b>" + SCRIPT,
    "system_prompt": "\n\n".join(PAYLOADS).replace("\x00", ""),
    "labels": {
        "title": "</title>" + SCRIPT + "<h1>forged</h1>\u202e",
        "cwd": SCRIPT,
        "source": SCRIPT,
        "part_of": SCRIPT,
    },
    "tools": [{"name": SCRIPT, "description": SCRIPT, "parameters": {"type": "object"}}],
}
