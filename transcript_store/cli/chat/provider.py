"""Choose the provider of a conversation, and say why it was chosen.

The first of these that applies:

1. the provider that ``--provider`` names;
2. the provider on record: no other one ever takes its place;
3. a compatible server, if its URL is given;
4. the first provider whose key is in the environment and whose SDK is installed;
5. a model server that runs on this machine;
6. the small local model.

A provider that was passed over, because something for it is not installed, is named with the reason.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from transcript_store import ConversationMetadata, InvalidBaseUrlError, MissingExtraError, MissingTokenError
from transcript_store.chat import PROVIDERS, Provider, host_of, is_loopback, validate_base_url
from transcript_store.cli._shared.providers import LOCAL, wire_of
from transcript_store.cli._shared.terminal import Misuse
from transcript_store.cli.chat.local import MODELS
from transcript_store.cli.chat.servers import Server, find
from transcript_store.installation import install_command
from transcript_store.messages import provider_family

COMPATIBLE = "openai-compatible"
NAMES = (*PROVIDERS, LOCAL)
_WITH_KEYS = tuple(name for name in PROVIDERS if name != COMPATIBLE)
_NO_TOKEN = "none"  # noqa: S105 (the SDK wants a token; given this one, it does not send the environment's key)


class OtherFormError(Misuse):
    """The conversation is with one provider, and another one was named, whose messages have another form."""

    def __init__(self, recorded: str, name: str) -> None:
        super().__init__(
            f"the conversation is with {recorded}, and {name} cannot go on with it; `transcript-store fork CONVERSATION --provider {name}` "
            f"makes a copy with which it can, `transcript-store chat --new --provider {name}` begins another one"
        )
        self.provider = name


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen provider, its model, and how to reach it.

    ``provider`` is the name that goes on record; the local model is recorded as a compatible server, and has ``is_local``.
    If ``token`` is None, the token comes from the provider's environment variable. ``why`` and ``passed_over`` are
    sentences for a person.
    """

    provider: Provider
    is_local: bool = False
    model: str
    base_url: str | None = None
    allow_insecure: bool = False
    token: str | None = None
    server: str | None = None
    why: str
    passed_over: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """The name of the one that answers, for use in a sentence."""
        if self.is_local:
            return "the local model"
        if self.server is not None:
            return self.server
        return self.provider if self.base_url is None else f"{self.provider} at {host_of(self.base_url)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """The name of a provider, and why it was chosen. ``servers`` are those found on this machine, if they were looked for."""

    name: str
    why: str
    passed_over: tuple[str, ...] = ()
    servers: Sequence[Server] = ()


def choose(
    *,
    named: str | None,
    model: str | None,
    base_url: str | None,
    allow_insecure: bool,
    metadata: ConversationMetadata | None,
    environment: Mapping[str, str] = os.environ,
    servers: Callable[[], Sequence[Server]] = find,
    is_installed: Callable[[str], bool] | None = None,
) -> Choice:
    """Choose the provider for this conversation.

    On return its SDK is installed, its key is in the environment if it needs one, and its URL is allowed. No provider was
    contacted.

    Args:
        named: the provider that the user named, or None.
        model: the model that the user named, or None.
        base_url: the URL that the user gave, or None.
        allow_insecure: whether the user allowed http.
        metadata: what is on record; None for a new conversation.
        environment: the environment variables.
        servers: finds the model servers on this machine. Called only if one of them would be chosen.
        is_installed: whether what a provider needs is installed.

    Raises:
        Misuse: the arguments contradict each other or the record; the sentence says what to change.
        MissingExtraError: the SDK of the provider is not installed.
        MissingTokenError: the environment has no key for the provider.
        InvalidBaseUrlError: no key may be sent to this URL.
    """
    is_installed = is_installed or _is_installed
    recorded = _recorded(metadata)
    chosen = _named(named, recorded, base_url, environment, servers, is_installed)
    name = chosen.name
    if recorded is not None and provider_family(wire_of(name)) != provider_family(wire_of(recorded)):
        raise OtherFormError(recorded, name)
    if not is_installed(name):
        raise MissingExtraError(provider=name, extra=LOCAL if name == LOCAL else PROVIDERS[name].extra)
    kept = metadata.model if metadata is not None and name == recorded else None
    if name == LOCAL:
        if base_url is not None or model not in (None, *MODELS):
            known = " and ".join(MODELS)
            raise Misuse(f"provider {LOCAL} has its own server, and the models {known}; --provider names another one")
        return Choice(
            provider=cast("Provider", COMPATIBLE),
            is_local=True,
            model=model or kept or next(iter(MODELS)),
            why=chosen.why,
            passed_over=chosen.passed_over,
        )
    provider = PROVIDERS[name]
    if name != COMPATIBLE and not any(environment.get(variable) for variable in provider.token_variables):
        raise MissingTokenError(provider=name, variables=provider.token_variables)
    url = base_url or environment.get(provider.base_url_variable)
    if name == COMPATIBLE and url is None:
        server, its_model = _on_this_machine(chosen.servers or servers(), model or kept)
        return Choice(
            provider=cast("Provider", name),
            model=its_model,
            base_url=server.base_url,
            allow_insecure=True,
            token=_NO_TOKEN,
            server=server.name,
            why=f"{server.name} runs on this machine, at port {server.port}",
            passed_over=chosen.passed_over,
        )
    return Choice(
        provider=cast("Provider", name),
        model=model or kept or provider.default_model,
        base_url=_checked_url(url, allow_insecure),
        allow_insecure=allow_insecure,
        why=chosen.why,
        passed_over=chosen.passed_over,
    )


def _recorded(metadata: ConversationMetadata | None) -> str | None:
    """The provider on record, or None. The local model is on record as a compatible server: its model's name tells it."""
    if metadata is None or metadata.provider is None:
        return None
    if provider_family(metadata.provider) == provider_family(COMPATIBLE) and metadata.model in MODELS:
        return LOCAL
    return metadata.provider


def _named(
    named: str | None,
    recorded: str | None,
    base_url: str | None,
    environment: Mapping[str, str],
    servers: Callable[[], Sequence[Server]],
    is_installed: Callable[[str], bool],
) -> _Named:
    if named is not None:
        return _Named(name=named, why="--provider names it")
    if recorded is not None:
        if recorded not in NAMES:
            raise Misuse(
                f"the conversation is with provider {recorded!r}, which chat does not speak; it was left alone"
            )
        if recorded == LOCAL and base_url is not None:
            # Both have the same form of messages, and the local model takes no URL: the user means a compatible server.
            return _Named(name=COMPATIBLE, why="--base-url is given")
        return _Named(name=recorded, why="the conversation's provider")
    if base_url is not None:
        return _Named(name=COMPATIBLE, why="--base-url is given")
    passed_over: list[str] = []
    for name in _WITH_KEYS:
        variable = next((each for each in PROVIDERS[name].token_variables if environment.get(each)), None)
        if variable is None:
            continue
        if is_installed(name):
            return _Named(name=name, why=f"{variable} is set", passed_over=tuple(passed_over))
        passed_over.append(
            f"{variable} is set, but the SDK of {name} is not installed: {install_command(PROVIDERS[name].extra)}"
        )
    if running := servers():
        if is_installed(COMPATIBLE):
            return _Named(name=COMPATIBLE, why="", passed_over=tuple(passed_over), servers=running)
        extra = PROVIDERS[COMPATIBLE].extra
        passed_over.append(
            f"{running[0].name} runs here, but what speaks to it is not installed: {install_command(extra)}"
        )
    why = "nothing else that could answer is installed" if passed_over else "no provider's key is in the environment"
    return _Named(name=LOCAL, why=why, passed_over=tuple(passed_over))


def _on_this_machine(servers: Sequence[Server], model: str | None) -> tuple[Server, str]:
    """The first server that has this model, and the name that the server has for it.

    If ``model`` is None: the first server and its largest model.
    """
    for server in servers:
        if (its_name := server.models[0] if model is None else server.model_named(model)) is not None:
            return server, its_name
    if not servers:
        raise Misuse(
            f"provider {COMPATIBLE} needs --base-url: where its server is is not on record, and none runs here"
        )
    there = "; ".join(f"{server.name} has {', '.join(server.models)}" for server in servers)
    raise Misuse(
        f"no server on this machine has the model {model!r}: {there}; --model names one, --base-url another server"
    )


def _is_installed(name: str) -> bool:
    if name == LOCAL:
        return importlib.util.find_spec("xllamacpp") is not None and PROVIDERS[COMPATIBLE].is_installed
    return PROVIDERS[name].is_installed


def _checked_url(url: str | None, allow_insecure: bool) -> str | None:
    if url is not None:
        validate_base_url(url, allow_insecure=allow_insecure)
        if allow_insecure and not url.startswith("https:") and not is_loopback(host_of(url)):
            raise InvalidBaseUrlError(reason="--allow-insecure-base-url is for servers on this machine alone")
    return url
