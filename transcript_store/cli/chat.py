"""``transcript-store chat``: a conversation with a model that goes on after any end of the process."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import ExitStack, closing
from typing import Any, cast

from transcript_store import (
    ConversationLockedError,
    ConversationStore,
    IncompleteResponseError,
    InvalidBaseUrlError,
    InvalidMessageError,
    MaxStepsError,
    MissingTokenError,
    ProviderMismatchError,
    TranscriptStoreError,
)
from transcript_store._local import (
    CONTEXT_TOKENS,
    MODEL,
    SIZE_BYTES,
    LocalModelError,
    LocalServer,
    fetched,
    newest_turns,
    rendered,
    weights_path,
)
from transcript_store.chat import ChatConfig, Complete, ResumableChatClient, TextDelta, create_client
from transcript_store.cli import _chat_terminal as terminal
from transcript_store.cli._arguments import path
from transcript_store.cli._chat_choice import NAMES, Choice, Misuse, choose
from transcript_store.cli._chat_place import Place, find, library
from transcript_store.cli._chat_trouble import sentence
from transcript_store.cli._terminal import complain, many, one_line, say, say_on
from transcript_store.cli._working import Working, bar
from transcript_store.cli.listing import lines_of_summary

HELP = "talk to a model; the conversation goes on the next time, whatever happens"
DESCRIPTION = f"""\
Talk to a model. Every message is on disk before it is sent, and the same command again goes on with the conversation:
after Ctrl-D, after a crash, after kill -9. Without DIR it is the last conversation of a library in your data directory.

The provider is the one that --provider names; else the one on record; else the first whose key is in the environment
(claude, openai, gemini); else local: {MODEL}, a small model that runs on this machine and needs no key. It is
fetched once ({SIZE_BYTES // 1_000_000} MB), has no tools, and its answers are a demonstration.

{terminal.HINT}
With standard input from a pipe each line is a turn, and the first turn that fails ends the command with 1.
"""
EPILOG = """\
examples:
  transcript-store chat
  transcript-store chat --new --provider claude --system "Be brief."
  transcript-store chat notes/today --provider openai-compatible --model qwen3 \\
      --base-url http://localhost:11434/v1 --allow-insecure-base-url
  echo "Where were we?" | transcript-store chat notes/today
"""

_ANSWER_TOKENS = 256
"""The most that the local model says at once: it does not always find an end."""
_TEMPLATE_TOKENS = 64
"""What the local model's template adds to a conversation."""
_CUT_SHORT = ("length", "max_tokens", "MAX_TOKENS")
"""The stop reasons of an answer that ran out of tokens."""
_ANSWERS_FAIL = (IncompleteResponseError, MaxStepsError, InvalidMessageError, LocalModelError)
"""The errors of this package that a next turn may follow; the others are the disk's."""
_TITLE_CHARACTERS = 60
_LOOK_BACK_RECORDS = 200
"""How far back the arrow keys reach."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("directory", metavar="DIR", nargs="?", type=path, help="the conversation's directory")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--new", action="store_true", help="begin a new conversation")
    which.add_argument("--list", action="store_true", help="list the conversations of the library, and end")
    which.add_argument("--resume", metavar="ID", help="go on with this conversation of the library")
    parser.add_argument("--provider", choices=NAMES, help="whose model answers")
    parser.add_argument("--model", metavar="NAME", help="the model (default: the one on record, or a current one)")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt (default: the one on record)")
    parser.add_argument("--base-url", metavar="URL", help="where the provider's API is")
    parser.add_argument(
        "--allow-insecure-base-url", action="store_true", help="allow http for a server on this machine (Ollama, vLLM)"
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, default=60.0, help="how long a server may be silent (default 60)"
    )


def run(arguments: Namespace) -> int:
    """Talk until the input ends."""
    try:
        if arguments.list:
            return _list(arguments)
        with find(arguments.directory, new=arguments.new, resume=arguments.resume) as place:
            return _Conversation(arguments, place).run()
    except (Misuse, InvalidBaseUrlError) as error:
        complain(str(error))
        return 2
    except ProviderMismatchError as error:
        complain(f"the conversation is with {error.snapshot_provider}, and {error.provider} cannot go on with it")
        return 2
    except MissingTokenError as error:
        complain(f"provider {error.provider} needs its key in {' or '.join(error.variables)}")
        return 2
    except ConversationLockedError as error:
        by = f"process {error.holder_pid}" if error.holder_pid else "another process"
        complain(f"{error.path}: {by} is talking in it; --new begins another conversation")
        return 1
    except ModuleNotFoundError as error:
        if error.name not in ("prompt_toolkit", "platformdirs"):
            raise
        complain(f"chat needs {error.name}, which is not installed: pip install 'transcript-store[chat]'")
        return 1


def _list(arguments: Namespace) -> int:
    if arguments.directory is not None:
        raise Misuse("--list is for the library in your data directory: transcript-store list DIR lists another one")
    shelf = library()
    summaries = shelf.list()
    for summary in summaries:
        for line in lines_of_summary(summary):
            say(line)
    if not summaries:
        say(f"{one_line(shelf.directory)}: there is no conversation yet")
    return 0


class _Conversation:
    """One run of the command: a place, a provider, and turns until the input ends."""

    def __init__(self, arguments: Namespace, place: Place) -> None:
        self._arguments = arguments
        self._place = place
        self._at_terminal = terminal.is_at_a_terminal()
        stored = place.conversation
        self._choice: Choice = choose(
            named=arguments.provider,
            model=arguments.model,
            base_url=arguments.base_url,
            allow_insecure=arguments.allow_insecure_base_url,
            metadata=None if stored is None else stored.get_metadata(),
        )
        self._called = "the local model" if self._choice.is_local else self._choice.provider
        self._resources = ExitStack()
        self._server: LocalServer | None = None
        self._client: ResumableChatClient | None = None

    def run(self) -> int:
        """Say where we are, then take turns; returns the exit code."""
        records = [] if self._place.conversation is None else self._place.conversation.get_records()
        say(self._first_line(sum(record.message is not None for record in records)), now=True)
        with self._resources:
            if not self._at_terminal:
                return self._take_piped_turns()
            terminal.show_last_turns(records)
            self._connect()
            say(terminal.HINT, now=True)
            recent = records[-_LOOK_BACK_RECORDS:]
            for prompt in terminal.typed([terminal.question(r) for r in recent if terminal.is_question(r)]):
                try:
                    self._turn(prompt)
                except KeyboardInterrupt:
                    say("\n(stopped; what came is on record)", now=True)
        return 0

    def _take_piped_turns(self) -> int:
        try:
            for prompt in terminal.piped():
                if not self._turn(prompt):
                    return 1
        except terminal.BadInputError as error:
            terminal.stop(str(error))
            return 1
        return 0

    def _first_line(self, messages: int) -> str:
        choice = self._choice
        name = f"local {choice.model}" if choice.is_local else f"{choice.provider} {choice.model}"
        count = "a new conversation" if self._place.conversation is None else many(messages, "message")
        return one_line(f"{self._place.directory}: {count}, with {name} ({choice.why})")

    # ---- before the first turn -----------------------------------------------------------------------------------

    def _connect(self) -> ResumableChatClient:
        """The client, made when it is first needed: an empty input fetches nothing, and creates nothing."""
        if self._client is None:
            choice = self._choice
            config: dict[str, Any] = {
                "provider": choice.provider,
                "model": choice.model,
                "system_prompt": self._arguments.system,
                "base_url": choice.base_url,
                "timeout_seconds": self._arguments.timeout,
                "select_messages": self._on_record,
            }
            if choice.is_local:
                self._server = server = self._serve()
                config |= {"base_url": server.base_url, "token": server.token, "max_tokens": _ANSWER_TOKENS}
            with Working(f"getting ready to talk to {self._called}"):
                self._client = self._made(ChatConfig(**config))
            self._resources.callback(self._client.close)
        return self._client

    def _made(self, config: ChatConfig) -> ResumableChatClient:
        allow_insecure = self._choice.is_local or self._choice.allow_insecure
        try:
            client = create_client(config, conversation=self._conversation(), allow_insecure_base_url=allow_insecure)
        except ValueError as error:
            if isinstance(error, TranscriptStoreError):
                raise
            raise Misuse(str(error)) from error  # a key that no HTTP header can carry
        return cast("ResumableChatClient", client)

    def _conversation(self) -> ConversationStore:
        choice = self._choice
        return self._place.conversation or self._place.create(
            provider=choice.provider, model=choice.model, system_prompt=self._arguments.system
        )

    def _serve(self) -> LocalServer:
        weights = weights_path()
        if not weights.exists():
            with bar(f"fetching {MODEL} ({SIZE_BYTES // 1_000_000} MB, once)") as progress:
                weights = fetched(progress)
        else:
            weights = fetched(lambda _done, _total: None)
        with Working("starting the local model"):
            return self._resources.enter_context(LocalServer(weights))

    def _on_record(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Called when the question is on disk and the request is made: from here on it counts as sent."""
        self._working.what = f"waiting for {self._called}"
        return messages if self._server is None else self._fitting(messages, self._server)

    def _fitting(self, messages: list[dict[str, Any]], server: LocalServer) -> list[dict[str, Any]]:
        """The newest turns that fit into the local model's context; the user is told when that is not all."""
        assert self._place.conversation is not None
        prompt = self._place.conversation.get_metadata().system_prompt
        budget = CONTEXT_TOKENS - _ANSWER_TOKENS - _TEMPLATE_TOKENS
        if prompt:
            budget -= server.count_tokens(rendered([{"role": "system", "content": prompt}]))
        chosen = newest_turns(messages, budget_tokens=budget, count_tokens=server.count_tokens)
        if chosen is None:
            raise LocalModelError(
                f"this message is longer than the local model's context of {CONTEXT_TOKENS:,} tokens; it is on record"
            )
        if len(chosen) < len(messages):
            complain(
                f"the conversation is longer than the model's context of {CONTEXT_TOKENS:,} tokens: it is told the last "
                f"{len(chosen):,} of {len(messages):,} messages; all of them stay on record"
            )
        return chosen

    # ---- a turn --------------------------------------------------------------------------------------------------

    def _turn(self, prompt: str) -> bool:
        """One turn; False if it failed, after saying why. Ctrl-C in it leaves what came on record."""
        client = self._connect()
        self._entitle(prompt)
        try:
            self._stream(client, prompt)
        except TranscriptStoreError as error:
            if not isinstance(error, _ANSWERS_FAIL):
                raise  # the disk's
            return self._failed(error)
        except (OSError, RecursionError, MemoryError):
            raise
        except Exception as error:  # the SDKs have no error in common
            return self._failed(error)
        return True

    def _stream(self, client: ResumableChatClient, prompt: str) -> None:
        stream = cast("Any", client.stream_chat(prompt))  # a generator: closing it keeps what came
        with Working("writing to disk") as self._working, closing(stream) as events:
            for event in events:
                self._working.done()
                if isinstance(event, TextDelta):
                    say_on(event.text)
                elif isinstance(event, Complete):
                    say(now=True)
                    if event.stop_reason in _CUT_SHORT:
                        complain("the answer is as long as this model's answers may be, and ends there")

    def _failed(self, error: Exception) -> bool:
        say(now=True)
        complain(sentence(error, server=self._called, timeout_seconds=self._arguments.timeout))
        return False

    def _entitle(self, prompt: str) -> None:
        """A conversation is called what was said in it first."""
        conversation = self._place.conversation
        assert conversation is not None
        labels = conversation.get_metadata().labels
        if conversation.record_count == 0 and "title" not in labels:
            line = " ".join(prompt.split())
            title = line if len(line) <= _TITLE_CHARACTERS else f"{line[: _TITLE_CHARACTERS - 1]}…"
            conversation.update_metadata(labels={**labels, "title": title})


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
