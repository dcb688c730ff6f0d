"""Which provider a conversation goes on with, and why that one.

The one that is named; else the one on record, and never another in its place; else a compatible server if its URL is given;
else the first whose key is in the environment; else the small model on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from transcript_store import ConversationMetadata, InvalidBaseUrlError, MissingTokenError
from transcript_store.chat import PROVIDERS, Provider, host_of, is_loopback, validate_base_url
from transcript_store.cli._shared.terminal import Misuse
from transcript_store.cli.chat.local import MODEL
from transcript_store.messages import provider_family

LOCAL = "local"
COMPATIBLE = "openai-compatible"
NAMES = (*PROVIDERS, LOCAL)
_WITH_KEYS = tuple(name for name in PROVIDERS if name != COMPATIBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A provider by the name that goes on record, or the local model, and what was chosen with it."""

    provider: Provider
    is_local: bool
    model: str
    base_url: str | None
    allow_insecure: bool
    why: str

    @property
    def called(self) -> str:
        """What to call whoever answers, in a sentence."""
        if self.is_local:
            return "the local model"
        return self.provider if self.base_url is None else f"{self.provider} at {host_of(self.base_url)}"


def choose(
    *,
    named: str | None,
    model: str | None,
    base_url: str | None,
    allow_insecure: bool,
    metadata: ConversationMetadata | None,
    environment: Mapping[str, str] = os.environ,
) -> Choice:
    """The provider for this conversation, checked as far as that needs nobody else: its key is there, its URL may be used.

    ``metadata`` is what is on record, None for a new conversation. Raises ``Misuse``, ``MissingTokenError``
    and ``InvalidBaseUrlError``.
    """
    recorded = _recorded(metadata)
    name, why = _named(named, recorded, base_url, environment)
    if recorded is not None and provider_family(_wire_of(name)) != provider_family(_wire_of(recorded)):
        raise Misuse(f"the conversation is with {recorded}, and {name} cannot go on with it; --new begins another one")
    if name == LOCAL:
        if base_url is not None or model not in (None, MODEL):
            raise Misuse(f"provider {LOCAL} has its own server and one model; name another provider with --provider")
        return Choice(
            provider=cast("Provider", COMPATIBLE),
            is_local=True,
            model=MODEL,
            base_url=None,
            allow_insecure=False,
            why=why,
        )
    provider = PROVIDERS[name]
    if name != COMPATIBLE and not any(environment.get(variable) for variable in provider.token_variables):
        raise MissingTokenError(provider=name, variables=provider.token_variables)
    kept = metadata.model if metadata is not None and name == recorded else None
    return Choice(
        provider=cast("Provider", name),
        is_local=False,
        model=model or kept or provider.default_model,
        base_url=_checked_url(name, base_url, allow_insecure, environment),
        allow_insecure=allow_insecure,
        why=why,
    )


def _recorded(metadata: ConversationMetadata | None) -> str | None:
    """The provider on record; the local model is on record as what it is to a client, and known by its model's name."""
    if metadata is None or metadata.provider is None:
        return None
    if provider_family(metadata.provider) == provider_family(COMPATIBLE) and metadata.model == MODEL:
        return LOCAL
    return metadata.provider


def _named(
    named: str | None, recorded: str | None, base_url: str | None, environment: Mapping[str, str]
) -> tuple[str, str]:
    if named is not None:
        return named, "--provider names it"
    if recorded is not None:
        if recorded not in NAMES:
            raise Misuse(
                f"the conversation is with provider {recorded!r}, which chat does not speak; it was left alone"
            )
        if recorded == LOCAL and base_url is not None:
            return COMPATIBLE, "--base-url is given"
        return recorded, "the conversation is with it"
    if base_url is not None:
        return COMPATIBLE, "--base-url is given"
    for name in _WITH_KEYS:
        for variable in PROVIDERS[name].token_variables:
            if environment.get(variable):
                return name, f"{variable} is set"
    return LOCAL, "no provider's key is in the environment"


def _wire_of(name: str) -> str:
    return COMPATIBLE if name == LOCAL else name


def _checked_url(name: str, base_url: str | None, allow_insecure: bool, environment: Mapping[str, str]) -> str | None:
    url = base_url or environment.get(PROVIDERS[name].base_url_variable)
    if url is None and PROVIDERS[name].base_url is None:
        raise Misuse(f"provider {name} needs --base-url: where its server is is not on record")
    if url is not None:
        validate_base_url(url, allow_insecure=allow_insecure)
        if allow_insecure and not url.startswith("https:") and not is_loopback(host_of(url)):
            raise InvalidBaseUrlError(reason="--allow-insecure-base-url is for servers on this machine alone")
    return url
