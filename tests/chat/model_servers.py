"""``aimock`` (npm) and ``llmock`` (PyPI): independent model servers, and the faults that they inject.

``TRANSCRIPT_STORE_AIMOCK`` names aimock's ``llmock`` script (``npm install --ignore-scripts @copilotkit/aimock``, then
``node_modules/.bin/llmock``), ``TRANSCRIPT_STORE_LLMOCK`` the ``llmock`` program of PyPI in a virtual environment of its own;
``.ci/run`` installs both.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.chat.lives import CALLS

STORY = "Once upon a time there was a transcript that survived everything that was done to it, and it was read."
FAULTS: list[dict[str, Any]] = [
    {"match": {"userMessage": "busy", "sequenceIndex": 0}, "response": {"error": {"message": "busy"}, "status": 429}},
    {"match": {"userMessage": "broken", "sequenceIndex": 0}, "response": {"error": {"message": "broken"}, "status": 500}},
    {"match": {"userMessage": "refused"}, "response": {"error": {"message": "refused"}, "status": 400}},
    {"match": {"userMessage": "cut"}, "response": {"content": STORY}, "latency": 15, "truncateAfterChunks": 4},
    {"match": {"userMessage": "stall"}, "response": {"content": STORY}, "latency": 30_000, "chunkSize": 10},
    {"match": {"userMessage": "garbled"}, "response": {"content": STORY}, "chaos": {"malformedRate": 1}},
    {"match": {"userMessage": "dropped"}, "response": {"content": STORY}, "chaos": {"disconnectRate": 1}},
]  # fmt: skip
FIXTURES = {
    "fixtures": [
        *FAULTS,
        {"match": {"userMessage": "Go on."}, "response": {"content": "Here again."}},
        {"match": {"userMessage": "What is it?", "hasToolResult": True}, "response": {"content": "3 and 7."}},
        {
            "match": {"userMessage": "What is it?"},
            "response": {"content": "I will add.", "toolCalls": [{"name": n, "arguments": a} for n, a in CALLS]},
        },
        {"match": {"userMessage": "story"}, "response": {"content": STORY}},
        {"match": {}, "response": {"content": "Here again."}},
    ]
}


@contextmanager
def running(command: list[str], health: str) -> Iterator[str]:
    """Start a server on a free port (``{port}`` in the command), wait until it answers, stop it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([part.format(port=port) for part in command], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                with urlopen(url + health):
                    break
            except (URLError, ConnectionError):
                assert process.poll() is None, "the server ended"
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = os.environ.get("TRANSCRIPT_STORE_AIMOCK")
    if not program:
        pytest.skip("TRANSCRIPT_STORE_AIMOCK is not set")
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps(FIXTURES))
    options = ["-p", "{port}", "-h", "127.0.0.1", "-f", str(fixtures), "--journal-max", "0", "--log-level", "silent"]
    with running(["node", program, *options], "/health") as url:
        yield url


@pytest.fixture(scope="module")
def llmock() -> Iterator[str]:
    program = os.environ.get("TRANSCRIPT_STORE_LLMOCK")
    if not program:
        pytest.skip("TRANSCRIPT_STORE_LLMOCK is not set")
    command = [program, "serve", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "error"]
    with running(command, "/_llmock/requests") as url:
        yield url
