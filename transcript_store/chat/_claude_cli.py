"""How does a client use the ``claude`` program in print mode? The program keeps the history itself.

Each turn is one process: ``claude --print --output-format json``, with the prompt on its standard input. ``--resume``
with the id from the last answer continues the conversation. The program has its own login, tools and record, so the
client has nothing to save or restore.

https://docs.anthropic.com/en/docs/claude-code/cli-reference
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from transcript_store.chat._client import parsed_answer
from transcript_store.chat._config import ChatConfig, Tool, Usage
from transcript_store.errors import IncompleteResponseError, MissingExtraError

PROGRAM = "claude"


class ClaudeLocalClient:
    """A client of the ``claude`` program. It satisfies ``ChatClient``, but cannot stream, save or restore.

    Raises:
        MissingExtraError: there is no ``claude`` program on ``PATH``; the message says how to install it.
    """

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
        """Remember a message. The next turn sends it before its own prompt; nothing is sent now."""
        self._unsaid.append(prompt)

    def chat(self, prompt: str) -> str:
        """Run the program for one turn and return the text of its answer.

        Messages that ``add()`` remembered are sent before the prompt. If the turn fails, they stay remembered for the next one.

        Raises:
            IncompleteResponseError: the program reported an error; ``text`` is what it answered.
            subprocess.CalledProcessError: the program ended with an error; ``stderr`` is what it printed.
            subprocess.TimeoutExpired: the program took longer than ``timeout_seconds``, and was killed.
            ValueError: the program printed something that is not JSON.
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
        """Run one turn whose answer is JSON, and return it parsed. The answer is not checked against the schema.

        The program has no option for a schema, so the prompt contains it.

        Raises:
            IncompleteResponseError: the answer is not JSON, or the program reported an error.
            Exception: as :meth:`chat`.
        """
        return parsed_answer(
            self.chat(
                f"{question}\n\nAnswer with nothing but JSON that satisfies this JSON schema:\n{json.dumps(schema)}"
            )
        )

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Accept an empty sequence only: the program runs its own tools.

        Raises:
            ValueError: the sequence is not empty.
        """
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
