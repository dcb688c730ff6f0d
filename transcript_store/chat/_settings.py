"""The settings of a conversation: provider, model, system prompt, and the descriptions of its tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transcript_store.chat._config import ChatConfig
from transcript_store.chat._provider import ToolDescription
from transcript_store.conversation import ConversationStore


class Facts:
    """The settings of a client's conversation. They are kept in its ``metadata.json``; without a conversation, in memory.

    A setting that the configuration gives replaces the one on record, and is written there. A setting that it leaves None is
    taken from the record. The provider is written too, although it can only be another of the same family: whoever resumes
    the conversation without naming a provider must reach the server that was used last.

    Raises:
        TranscriptStoreError: calls that change a setting; as the store's ``update_metadata()``.
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
        self._given: dict[str, Any] = {}
        """What was set last: what is on record may be less, if the store takes out secrets."""
        self.refresh()

    def refresh(self) -> None:
        """Read the settings on record, then replace those that the configuration gives."""
        if self._conversation is not None:
            self._values = self._on_record(self._conversation)
        self._given.clear()
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
        """Take the system prompt of the configuration, and record it if it changed. A callable is called again."""
        prompt = self._config.system_prompt
        if prompt is not None:
            self._set(system_prompt=prompt() if callable(prompt) else prompt)

    def take(self, *, system_prompt: str | None, tools: list[dict[str, Any]] | None) -> None:
        """Take the settings of a snapshot, then replace those that the configuration gives. Only without a conversation."""
        self._values.update(system_prompt=system_prompt, tools=tools)
        self.refresh()

    def set(self, *, tools: Sequence[ToolDescription]) -> None:
        """Replace the tools' descriptions. On return they are on record."""
        self._set(
            tools=[
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
            ]
            or None
        )

    def _set(self, **values: Any) -> None:
        changed = {name: value for name, value in values.items() if value != self._given.get(name, self._values[name])}
        if changed and self._conversation is not None:
            self._conversation.update_metadata(**changed)
        self._given.update(changed)
        self._values.update(changed)
        if changed and self._conversation is not None and self._conversation.redacts:
            self._values = self._on_record(self._conversation)  # a request has what is on record, and nothing more

    def _on_record(self, conversation: ConversationStore) -> dict[str, Any]:
        metadata = conversation.get_metadata()
        return {name: getattr(metadata, name) for name in self._values}
