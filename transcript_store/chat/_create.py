"""How is a client created: the known providers, the source of a token, where it may be sent, and what is stored?

Of the ``claude`` program in print mode, each turn is one process: ``claude --print --output-format json``, with the
prompt on its standard input. ``--resume`` with the id from the last answer continues the conversation. The program has
its own login, tools and record, so the client has nothing to save or restore.

https://docs.anthropic.com/en/docs/claude-code/cli-reference
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transcript_store.chat._client import ResumableChatClient, parsed_answer
from transcript_store.chat._config import (
    ChatClient,
    ChatConfig,
    Facts,
    Tool,
    Usage,
    host_of,
    is_loopback,
    validate_base_url,
)
from transcript_store.chat._history import History, plain_copies
from transcript_store.chat._provider import Connection, Message, WireFormat
from transcript_store.chat._providers import claude, openai
from transcript_store.chat._providers.claude import ClaudeWire
from transcript_store.chat._providers.gemini import GeminiConnection, GeminiWire
from transcript_store.chat._providers.openai import OpenAIWire
from transcript_store.conversation import ConversationStore
from transcript_store.errors import (
    ConversationNotLoadedError,
    IncompleteResponseError,
    InvalidBaseUrlError,
    MissingExtraError,
    MissingTokenError,
    ProviderMismatchError,
)
from transcript_store.messages import PROMPT_ROLES, provider_family

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


_log = logging.getLogger("transcript_store.chat")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """A provider whose wire format this package knows.

    ``extra`` is the extra of this package that installs the provider's SDK; ``sdk`` is the SDK's module. ``default_model`` and
    ``base_url`` are used if the caller and the environment give none. ``base_url`` is None if the provider has no server of its
    own. ``token_variables`` and ``base_url_variable`` are names of environment variables; the first that is set is used.
    ``wire`` and ``connect`` are internal and may change.
    """

    extra: str
    sdk: str
    wire: Callable[[], WireFormat] = field(repr=False)
    connect: Callable[..., Connection] = field(repr=False)
    default_model: str
    token_variables: tuple[str, ...]
    base_url: str | None
    base_url_variable: str

    @property
    def is_installed(self) -> bool:
        """True if the SDK is installed. The SDK is not imported; its parent packages are."""
        try:
            return importlib.util.find_spec(self.sdk) is not None
        except ModuleNotFoundError:  # a parent package is missing
            return False


_CLAUDE = ProviderInfo(
    extra="claude",
    sdk="anthropic",
    wire=ClaudeWire,
    connect=claude.connect,
    default_model="claude-sonnet-5-5",
    token_variables=("ANTHROPIC_API_KEY",),
    base_url="https://api.anthropic.com",
    base_url_variable="ANTHROPIC_BASE_URL",
)

PROVIDERS: Mapping[str, ProviderInfo] = {
    "claude": _CLAUDE,
    "openai": ProviderInfo(
        extra="openai",
        sdk="openai",
        wire=OpenAIWire,
        connect=openai.connect,
        default_model="gpt-6.2-sol",
        token_variables=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
    ),
    "openai-compatible": ProviderInfo(
        extra="openai",
        sdk="openai",
        wire=lambda: OpenAIWire(limit_member="max_tokens"),
        connect=openai.connect,
        default_model="default",
        token_variables=("OPENAI_API_KEY",),
        base_url=None,
        base_url_variable="OPENAI_BASE_URL",
    ),
    "gemini": ProviderInfo(
        extra="gemini",
        sdk="google.genai",
        wire=GeminiWire,
        connect=GeminiConnection,
        default_model="gemini-3.8-flash",
        token_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),  # in the SDK's own order
        base_url="https://generativelanguage.googleapis.com",
        base_url_variable="GOOGLE_GEMINI_BASE_URL",
    ),
}
"""The providers of clients that record a transcript, by name. ``claude-local`` keeps its own record and is not among them."""


def create_client(
    config: ChatConfig, *, conversation: ConversationStore | None = None, allow_insecure_base_url: bool = False
) -> ChatClient:
    """Create a chat client. With a ``conversation`` it continues the recorded messages, and records every step.

    The store is loaded, or initialized, if it is not yet. The caller closes it. On return the model, the system prompt and the
    ``initial_history`` of the configuration are on record. Nothing has been sent.

    ``claude-local`` takes no ``conversation`` and no ``initial_history``. It ignores ``max_tokens`` and ``select_messages``.

    Args:
        config: provider, model, prompt, token and limits.
        conversation: where the client records. Without one, the conversation is lost when the client is dropped.
        allow_insecure_base_url: allow http, to any host. It is meant for servers on this machine. No file and no environment
            variable can set it.

    Returns:
        A ``ResumableChatClient``, or for ``claude-local`` a client that is a ``ChatClient`` only.

    Raises:
        MissingExtraError: the provider's SDK (or program) is not installed; the message says how to install it.
        MissingTokenError: there is no token; the message names the environment variables.
        InvalidBaseUrlError: no token may be sent to the base URL, or ``openai-compatible`` was given none.
        ProviderMismatchError: the messages on record have another provider's form. Use that provider, or another conversation.
        ValueError: the token has characters that no HTTP header can carry.
        ValueError: ``initial_history`` has a system message. Give it as ``ChatConfig.system_prompt``.
        ValueError: ``initial_history`` was given, but the conversation has messages already.
        ValueError: ``claude-local`` was given a conversation or an ``initial_history``.
        TypeError: ``config`` is not a ``ChatConfig``, or ``conversation`` not a ``ConversationStore``.
        InvalidMessageError: the record cannot hold a message of ``initial_history``; the error says which.
        TranscriptStoreError: as :meth:`ConversationStore.load_or_initialize`.
    """
    if not isinstance(config, ChatConfig):
        raise TypeError(f"config must be a ChatConfig, not {type(config).__name__}: ChatConfig(provider=…)")
    if not isinstance(conversation, ConversationStore | None):
        raise TypeError(f"conversation must be a ConversationStore, not {type(conversation).__name__}")
    if config.provider == "claude-local":
        return _local(config, conversation, allow_insecure=allow_insecure_base_url)
    provider = PROVIDERS[config.provider]
    base_url = _base_url(config, provider, allow_insecure=allow_insecure_base_url)
    token = _token(config, provider, may_be_absent=provider.base_url is None and is_loopback(host_of(base_url)))
    history = _initial_history(config)
    try:
        connection = provider.connect(token=token, base_url=base_url, timeout_seconds=config.timeout_seconds)
    except ModuleNotFoundError as error:
        raise MissingExtraError(provider=config.provider, extra=provider.extra) from error
    wire = provider.wire()
    if conversation is not None:
        _attach(conversation, config, provider, history)
    facts = Facts(config, default_model=provider.default_model, conversation=conversation)
    recorded = History(wire, conversation)
    if conversation is None:
        recorded.replace(history)
    _log_where_requests_go(config, base_url)
    return ResumableChatClient(
        config=config,
        wire=wire,
        connection=connection,
        conversation=conversation,
        history=recorded,
        facts=facts,
    )


def _local(config: ChatConfig, conversation: ConversationStore | None, *, allow_insecure: bool) -> ChatClient:
    if conversation is not None or config.initial_history:
        raise ValueError("claude-local keeps its history to itself; it takes no conversation and no initial_history")
    base_url = config.base_url or os.environ.get(_CLAUDE.base_url_variable) or ""
    validate_base_url(base_url, allow_insecure=allow_insecure)
    token = _checked(config.token() if callable(config.token) else config.token)
    client = ClaudeLocalClient(config, token=token, base_url=base_url)
    if base_url:  # without one the program uses its own
        _log_where_requests_go(config, base_url)
    return client


def _log_where_requests_go(config: ChatConfig, base_url: str) -> None:
    _log.info("%s: requests go to %s", config.provider, host_of(base_url))


def _base_url(config: ChatConfig, provider: ProviderInfo, *, allow_insecure: bool) -> str:
    """The URL that the token is sent to, validated: from the configuration, else the environment, else the provider."""
    url = config.base_url or os.environ.get(provider.base_url_variable) or provider.base_url
    if not url:
        raise InvalidBaseUrlError(reason=f"{config.provider} needs one, and none was given")
    validate_base_url(url, allow_insecure=allow_insecure)
    return url


def _token(config: ChatConfig, provider: ProviderInfo, *, may_be_absent: bool) -> str:
    given = config.token() if callable(config.token) else config.token
    tokens = [os.environ.get(name) for name in provider.token_variables] if given is None else [given]
    for token in map(_checked, tokens):
        if token:
            return token
    if may_be_absent:
        return "none"  # the SDK requires a token; a server on this machine ignores it
    raise MissingTokenError(provider=config.provider, variables=provider.token_variables)


def _checked(token: str | None) -> str:
    """The token without the line feed that files and keychains add.

    A token that no header can carry is refused here: the error of httpx2 would contain it.
    """
    token = (token or "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("the token holds characters that no HTTP header can carry")
    return token


def _initial_history(config: ChatConfig) -> list[Message]:
    messages = plain_copies(config.initial_history or (), "initial_history")
    for place, message in enumerate(messages):
        if message.get("role") in PROMPT_ROLES:
            raise ValueError(f"initial_history[{place}] is a system message; give it as ChatConfig.system_prompt")
    return messages


def _attach(
    conversation: ConversationStore, config: ChatConfig, provider: ProviderInfo, initial_history: list[Message]
) -> None:
    """Load or initialize the store, check that this provider can continue it, and record the initial history."""
    try:
        metadata = conversation.get_metadata()
    except ConversationNotLoadedError:
        prompt: Any = config.system_prompt
        if conversation.exists():
            conversation.load()  # the client records a model or prompt that differs; load_or_initialize() would warn of it
        elif conversation.load_or_initialize(
            provider=config.provider,
            model=config.model or provider.default_model,
            system_prompt=None if callable(prompt) else prompt,
            messages=initial_history,
            features=["retract"],
        ):
            return
        metadata = conversation.get_metadata()
    if metadata.provider is not None and provider_family(metadata.provider) != provider_family(config.provider):
        raise ProviderMismatchError(recorded_provider=metadata.provider, provider=config.provider)
    if initial_history:
        if conversation.get_messages(last=1):
            raise ValueError("initial_history cannot be combined with a conversation that has messages")
        conversation.append_messages(initial_history)
