"""The ``claude`` command-line program in print mode: a client that keeps its history to itself.

One process a turn, ``claude --print --output-format json``, the prompt on its standard input; ``--resume`` with the id that the
last answer gave goes on. The program has its own login, its own tools and its own record, so there is nothing here to save or
restore.

https://docs.anthropic.com/en/docs/claude-code/cli-reference
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from transcript_store.chat._answers import parsed_answer
from transcript_store.chat._config import ChatConfig, Tool
from transcript_store.chat._protocols import Usage
from transcript_store.errors import IncompleteResponseError, MissingExtraError

PROGRAM = "claude"


class ClaudeLocalClient:
    """Talks to the ``claude`` program. It satisfies ``ChatClient`` alone."""

    def __init__(self, config: ChatConfig, *, token: str | None, base_url: str | None) -> None:
        program = shutil.which(PROGRAM)
        if program is None:
            raise MissingExtraError(provider=config.provider, extra=None, program=PROGRAM)
        self._program = program
        self._config = config
        self._environment = dict(os.environ)
        if token:
            self._environment["ANTHROPIC_API_KEY"] = token
        if base_url:
            self._environment["ANTHROPIC_BASE_URL"] = base_url
        self._unsaid: list[str] = []
        self._conversation_id: str | None = None
        self._usage = Usage()

    def add(self, prompt: str) -> None:
        """Remember a message; the next turn says it first."""
        self._unsaid.append(prompt)

    def chat(self, prompt: str) -> str:
        """One turn of the program; returns its answer.

        Raises ``IncompleteResponseError`` if the program reports an error, ``subprocess.CalledProcessError`` if it fails and
        ``subprocess.TimeoutExpired`` after ``timeout_seconds``.
        """
        done = subprocess.run(  # noqa: S603 (the program that the user chose, no shell)
            self._command(),
            input="\n\n".join([*self._unsaid, prompt]),
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=self._environment,
            timeout=self._config.timeout_seconds,
            check=True,
        )
        answer = json.loads(done.stdout)
        text = str(answer.get("result") or "")
        if answer.get("is_error"):
            raise IncompleteResponseError(reason=f"the {PROGRAM} program reported an error", text=text)
        self._unsaid.clear()
        self._conversation_id = answer.get("session_id") or self._conversation_id
        usage = answer.get("usage") or {}
        self._usage = Usage(
            input_tokens=self._usage.input_tokens + int(usage.get("input_tokens") or 0),
            output_tokens=self._usage.output_tokens + int(usage.get("output_tokens") or 0),
        )
        return text

    def ask(self, question: str, schema: dict[str, Any]) -> Any:
        """One turn whose answer is JSON; the program is told the schema in words. Raises ``IncompleteResponseError`` if it is not."""
        return parsed_answer(
            self.chat(
                f"{question}\n\nAnswer with nothing but JSON that satisfies this JSON schema:\n{json.dumps(schema)}"
            )
        )

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """The program runs tools of its own and cannot be given any: raises ``ValueError`` for any."""
        if tools:
            raise ValueError("claude-local runs the claude program's own tools; it cannot be given any")

    @property
    def usage(self) -> Usage:
        """The tokens that the program reported since this client was made."""
        return self._usage

    def _command(self) -> list[str]:
        prompt = self._config.system_prompt
        command = [self._program, "--print", "--output-format", "json"]
        command += ["--max-turns", str(self._config.max_steps)]
        if self._config.model:
            command += ["--model", self._config.model]
        if prompt is not None:
            command += ["--system-prompt", prompt() if callable(prompt) else prompt]
        if self._conversation_id:
            command += ["--resume", self._conversation_id]
        return command
