"""What is on record of a conversation beside its messages: provider, model, system prompt, the tools' descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transcript_store.chat._config import ChatConfig
from transcript_store.chat._provider import ToolDescription
from transcript_store.conversation import ConversationStore


class Facts:
    """The metadata of a conversation as its client has it: in ``metadata.json`` where there is one, else in memory.

    What the configuration gives wins over what is on record, and is written to it; what it leaves None is kept. The provider
    is one of the same family: who resumes without naming one must reach the server that was named last.
    """

    def __init__(self, config: ChatConfig, *, default_model: str, conversation: ConversationStore | None) -> None:
        self._config = config
        self._default_model = default_model
        self._conversation = conversation
        self._values: dict[str, Any] = {
            "provider": config.provider,
            "model": None,
            "system_prompt": None,
            "tools": None,
        }
        self.refresh()

    def refresh(self) -> None:
        """Take what is on record, then let the configuration have its say."""
        if self._conversation is not None:
            metadata = self._conversation.get_metadata()
            self._values = {name: getattr(metadata, name) for name in self._values}
        self._set(
            provider=self._config.provider,
            model=self._config.model or self._values["model"] or self._default_model,
        )
        self.renew_prompt()

    @property
    def provider(self) -> str:
        return str(self._values["provider"])

    @property
    def model(self) -> str:
        return str(self._values["model"])

    @property
    def system_prompt(self) -> str | None:
        prompt: str | None = self._values["system_prompt"]
        return prompt

    @property
    def tools(self) -> list[dict[str, Any]]:
        return self._values["tools"] or []

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(str(tool.get("name")) for tool in self.tools)

    def renew_prompt(self) -> None:
        """Ask for the system prompt again, where the configuration gives a callable, and write it down if it is another."""
        prompt = self._config.system_prompt
        if prompt is not None:
            self._set(system_prompt=prompt() if callable(prompt) else prompt)

    def take(self, *, system_prompt: str | None, tools: list[dict[str, Any]] | None) -> None:
        """Go on from other facts, where there is no conversation that was given them; then the configuration has its say."""
        self._values.update(system_prompt=system_prompt, tools=tools)
        self.refresh()

    def set(self, *, tools: Sequence[ToolDescription]) -> None:
        self._set(
            tools=[
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
            ]
            or None
        )

    def _set(self, **values: Any) -> None:
        changed = {name: value for name, value in values.items() if value != self._values[name]}
        if changed and self._conversation is not None:
            self._conversation.update_metadata(**changed)
        self._values.update(changed)
