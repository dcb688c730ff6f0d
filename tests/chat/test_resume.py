"""A conversation goes on: in a new client, from a snapshot, from a history of somebody else; with other tools, another model.

On every request the system prompt stands exactly once, and everything that was said stands in front of what is new.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Call, Dialect, OpenAI
from tests.chat.server import Server
from transcript_store import ConversationStore, FileStore, Record, Snapshot
from transcript_store.chat import ChatConfig, PersistentChatClient, Tool, create_client
from transcript_store.errors import ConversationNotLoadedError, InvalidMessageError, ProviderMismatchError

CALLS = (("add", {"a": 1, "b": 2}),)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = Tool("add", "Add.", SCHEMA, handler=lambda a, b: a + b)


def begin(dialect: Dialect, server: Server, conversation: ConversationStore | None = None, **config: Any) -> Any:
    """A client with one tool turn behind it."""
    server.answers += [dialect.reply("I add.", CALLS), dialect.reply("3.")]
    client = connect(dialect, server, conversation, **{"system_prompt": "Be brief.", **config})
    client.set_tools([ADD])
    assert client.chat("1 and 2?") == "3."
    return client


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "in memory"])
def test_a_snapshot_is_listed_restored_and_continued(
    dialect: Dialect, server: Server, tmp_path: Path, recorded: bool
) -> None:
    """The chain save, list, restore, go on, save again, each time into a fresh client that has another model."""
    store = FileStore(tmp_path / "snapshots")
    first = ConversationStore(tmp_path / "first") if recorded else None
    client = begin(dialect, server, first)
    assert isinstance(client, PersistentChatClient)
    history = client.export_history()
    store.save(client.save(metadata={"topic": "sums"}))
    for number in range(3):
        (summary, *_) = store.list()
        assert (summary.provider, summary.message_count) == (
            dialect.provider,
            len(history) + dialect.name.startswith("openai"),
        )
        snapshot = store.load(summary.id)
        assert snapshot.metadata["topic"] == "sums"
        assert snapshot.system_prompt == "Be brief."
        conversation = ConversationStore(tmp_path / f"copy-{number}") if recorded else None
        fresh = connect(dialect, server, conversation, model=f"model-{number}")
        fresh.restore(snapshot)
        assert fresh.export_history() == history
        assert fresh.missing_tools == ("add",)
        fresh.set_tools([ADD])
        assert fresh.missing_tools == ()
        server.answers += [dialect.reply(f"Answer {number}.")]
        assert fresh.chat(f"Question {number}?") == f"Answer {number}."
        body = server.bodies[-1]
        assert dialect.system_prompts(body) == ["Be brief."]
        assert dialect.messages(body)[:-1] == history
        assert f"model-{number}" in json.dumps(body) + server.requests[-1].path
        assert fresh.model == f"model-{number}"
        history = fresh.export_history()
        store.save(fresh.save(metadata={"topic": "sums"}))
        if conversation is not None:
            assert conversation.get_metadata().model == f"model-{number}"
            conversation.close()
    if first is not None:
        first.close()


def test_a_snapshots_metadata_is_the_callers_but_for_ours(dialect: Dialect, server: Server) -> None:
    """Keys of ours say where a conversation came from; nobody else may say it."""
    with pytest.raises(ValueError, match=r"transcript_store\."):
        connect(dialect, server).save(metadata={"transcript_store.seq": "1"})


def test_a_client_keeps_its_model_through_a_restore(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Also one that took it from the record: the snapshot's model is another program's choice."""
    snapshot = begin(dialect, server, model="theirs").save()
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(provider=dialect.provider, model="ours")
        client = connect(dialect, server, conversation)
        client.restore(snapshot)
        assert client.model == conversation.get_metadata().model == "ours"
        assert client.save().model == "ours"


def test_forty_calls_in_one_reply(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The reply that is owed results is found however many records stand behind it."""
    calls: tuple[Call, ...] = tuple(("add", {"a": k, "b": 0}) for k in range(40))
    ran: list[int] = []

    def add(a: int, b: int) -> int:
        ran.append(a)
        if a == 30:
            raise KeyboardInterrupt
        return a + b + 1000

    server.answers += [dialect.reply("", calls), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("add", "", SCHEMA, handler=add)])
        with pytest.raises(KeyboardInterrupt):
            client.chat("Go")
    with ConversationStore(tmp_path / "c") as conversation:
        assert connect(dialect, server, conversation).chat("Go on") == "Yes."
        told = json.dumps(dialect.messages(server.bodies[1]))
    assert [k for k in range(40) if f'"{1000 + k}"' in told] == list(range(30))
    assert told.count("outcome is unknown") == 10


def test_a_snapshot_of_another_provider_is_refused(server: Server, tmp_path: Path) -> None:
    """Each provider's snapshot into each other's client: refused, nothing changed; the two OpenAIs are one family."""
    snapshots = {name: begin(dialect, server).save() for name, dialect in DIALECTS.items()}
    for name, dialect in DIALECTS.items():
        with ConversationStore(tmp_path / name) as conversation:
            client = connect(dialect, server, conversation)
            for other, snapshot in snapshots.items():
                if {name, other} <= {"openai", "openai-compatible"} or name == other:
                    client.restore(snapshot)
                    continue
                before = client.export_history()
                with pytest.raises(ProviderMismatchError) as caught:
                    client.restore(snapshot)
                assert (caught.value.recorded_provider, caught.value.provider) == (other, name)
                assert client.export_history() == conversation.get_messages() == before


def test_a_conversation_of_another_provider_is_refused(server: Server, tmp_path: Path) -> None:
    """Found out before anything is written; the store stays as it was."""
    with ConversationStore(tmp_path / "c") as conversation:
        begin(DIALECTS["openai"], server, conversation)
        head, metadata = conversation.head, conversation.get_metadata()
        with pytest.raises(ProviderMismatchError):
            connect(DIALECTS["gemini"], server, conversation, model="another", system_prompt="Another.")
        assert (conversation.head, conversation.get_metadata()) == (head, metadata)
        connect(DIALECTS["openai-compatible"], server, conversation)
        assert conversation.get_metadata().provider == "openai-compatible"


def test_what_is_on_record_is_read_once(
    dialect: Dialect, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed client has it from the start, and does not read a long conversation again at each step of its own."""
    with ConversationStore(tmp_path / "c") as conversation:
        history = begin(dialect, server, conversation).export_history()
    reads: list[int] = []
    get_records = ConversationStore.get_records

    def counted(self: ConversationStore, **options: Any) -> list[Record]:
        reads.append(1)
        return get_records(self, **options)

    with ConversationStore(tmp_path / "c") as conversation:
        conversation.load()
        monkeypatch.setattr(ConversationStore, "get_records", counted)
        client = connect(dialect, server, conversation)
        assert client.export_history() == history
        client.set_tools([ADD])
        server.answers += [dialect.reply("", CALLS), dialect.reply("Yes.")]
        client.chat("Again?")
        assert len(reads) == 1


def test_model_and_prompt_are_kept_unless_they_are_given(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """None keeps what is on record; a given one is written to it, and is what the next request says."""
    with ConversationStore(tmp_path / "c") as conversation:
        begin(dialect, server, conversation, model="first")
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        metadata = conversation.get_metadata()
        assert (client.model, metadata.model, metadata.system_prompt) == ("first", "first", "Be brief.")
        assert client.missing_tools == ("add",)
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, model="second", system_prompt="Be long.")
        metadata = conversation.get_metadata()
        assert (client.model, metadata.model, metadata.system_prompt) == ("second", "second", "Be long.")
        server.answers += [dialect.reply("Well.")]
        client.chat("So?")
        assert dialect.system_prompts(server.bodies[-1]) == ["Be long."]


def test_a_prompt_that_is_made_anew_for_each_turn(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The callable is asked before each turn; what it says is in the request, once, and on record."""
    said = iter(f"It is day {day}." for day in range(10))
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, system_prompt=lambda: next(said))
        for _ in range(2):
            server.answers += [dialect.reply("Yes.")]
            client.chat("Is it?")
            (prompt,) = dialect.system_prompts(server.bodies[-1])
            assert conversation.get_metadata().system_prompt == prompt
        assert dialect.system_prompts(server.bodies[0]) != dialect.system_prompts(server.bodies[1])


def test_a_prompt_that_a_log_holds_is_not_sent_twice(server: Server, tmp_path: Path) -> None:
    """A transcript that some other program began with a system message: the prompt stands on the wire once."""
    dialect = DIALECTS["openai"]
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(
            provider="openai", messages=[{"role": "system", "content": "Old."}, {"role": "user", "content": "Hi"}]
        )
        client = connect(dialect, server, conversation)
        server.answers += [dialect.reply("Yes.")] * 2
        client.chat("One")
        assert dialect.system_prompts(server.bodies[-1]) == ["Old."]
        client = connect(dialect, server, conversation, system_prompt="New.")
        client.chat("Two")
        assert dialect.system_prompts(server.bodies[-1]) == ["New."]


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("provider", ["openai", "openai-compatible"])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "in memory"])
@pytest.mark.parametrize(
    "second", [said("developer", "It is Monday."), said("system", "Be brief.")], ids=["other", "same"]
)
def test_a_second_system_message_is_sent_exported_and_saved(
    provider: str, second: dict[str, Any], recorded: bool, server: Server, tmp_path: Path
) -> None:
    """An OpenAI history that begins with two: only the prompt is taken off, the other is a message like all others.

    Incident: it was on record, and in no request and in no export.
    """
    dialect = DIALECTS[provider]
    history = [said("system", "Be brief."), second, said("user", "Hi"), said("assistant", "Hello.")]
    snapshot = Snapshot.create(provider=provider, messages=history, system_prompt="Be brief.")
    for number in range(2):
        with ConversationStore(tmp_path / f"{number}") as conversation:
            client = connect(dialect, server, conversation if recorded else None)
            client.restore(snapshot)
            assert client.export_history() == history[1:]
            if recorded:  # and so it is for the next process
                conversation.close()
                client = connect(dialect, server, conversation)
            server.answers += [dialect.reply("Yes.")]
            client.chat("Is it?")
            assert server.bodies[-1]["messages"] == [*history, said("user", "Is it?")]
            history = [history[0], *client.export_history()]
            snapshot = client.save()
            assert snapshot.messages == history


@pytest.mark.parametrize("recorded_prompt", [None, "Be brief."])
@pytest.mark.parametrize("configured", [None, "Be brief.", "New."])
def test_a_log_that_begins_with_two_system_messages(
    recorded_prompt: str | None, configured: str | None, server: Server, tmp_path: Path
) -> None:
    """The first is the prompt, whichever is configured; the second is sent, exported and saved."""
    dialect = DIALECTS["openai"]
    second, hello = said("system", "It is Monday."), said("user", "Hi")
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(
            provider="openai", system_prompt=recorded_prompt, messages=[said("system", "Be brief."), second, hello]
        )
        for question in ("One", "Two"):
            client = connect(dialect, server, conversation, system_prompt=configured)
            before = client.export_history()
            assert before[:2] == [second, hello]
            server.answers += [dialect.reply("Yes.")]
            client.chat(question)
            prompt = said("system", configured or "Be brief.")
            assert server.bodies[-1]["messages"] == [prompt, *before, said("user", question)]
            assert client.save().messages[:3] == [prompt, second, hello]
            conversation.close()


def test_a_system_message_behind_a_prompt_that_is_not_in_the_log(server: Server, tmp_path: Path) -> None:
    """The prompt is in the metadata from the start, so that the system message which the transcript begins with is another one."""
    dialect = DIALECTS["openai"]
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(
            provider="openai", system_prompt="Be brief.", messages=[said("system", "It is Monday.")]
        )
        for configured, prompt in ((None, "Be brief."), ("New.", "New."), (None, "New.")):
            client = connect(dialect, server, conversation, system_prompt=configured)
            server.answers += [dialect.reply("Yes.")]
            client.chat("Is it?")
            assert dialect.system_prompts(server.bodies[-1]) == [prompt, "It is Monday."]
            assert client.export_history()[0] == said("system", "It is Monday.")
            conversation.close()
        client = connect(dialect, server, conversation, system_prompt="It is Monday.")  # which makes it the prompt
        server.answers += [dialect.reply("Yes.")]
        client.chat("Is it?")
        assert dialect.system_prompts(server.bodies[-1]) == ["It is Monday."]
        assert client.export_history()[0] == said("user", "Is it?")


@pytest.mark.parametrize("provider", ["claude", "gemini"])
def test_system_messages_in_a_log_of_a_provider_that_has_none(provider: str, server: Server, tmp_path: Path) -> None:
    """The service would refuse them, and nothing but another program's log can hold them: all that stand in front are left out."""
    dialect = DIALECTS[provider]
    with ConversationStore(tmp_path / "c") as conversation:
        logged = [said("system", "Old."), said("developer", "It is Monday.")]
        conversation.initialize(provider=provider, system_prompt="Be brief.", messages=logged)
        client = connect(dialect, server, conversation)
        server.answers += [dialect.reply("Yes.")]
        client.chat("Is it?")
        assert dialect.system_prompts(server.bodies[-1]) == ["Be brief."]
        assert dialect.messages(server.bodies[-1]) == client.export_history()[:1] == conversation.get_messages()[2:3]


def test_a_prompt_that_replaced_the_one_of_a_log_replaces_it_everywhere(server: Server, tmp_path: Path) -> None:
    """Through save, restore and resume: one prompt on each request."""
    dialect = DIALECTS["openai"]
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(provider="openai", messages=[said("system", "Old."), said("user", "Hi")])
        snapshot = connect(dialect, server, conversation, system_prompt="New.").save()
    assert snapshot.messages == [said("system", "New."), said("user", "Hi")]
    with ConversationStore(tmp_path / "copy") as copy:
        client = connect(dialect, server, copy)
        client.restore(snapshot)
        server.answers += [dialect.reply("Yes.")]
        client.chat("Is it?")
        assert dialect.system_prompts(server.bodies[-1]) == ["New."]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("last", [0, 1, 2, 3, 4])
def test_the_last_messages_of_a_long_turn(dialect: Dialect, server: Server, last: int) -> None:
    """However few are selected, each request opens as the provider demands, has the question, and results with their calls.

    Incident: with ``messages[-n:]`` a request began with a function call, which Gemini refuses, or an assistant's, which Claude
    refuses; with fewer still, with nothing at all.
    """
    client = connect(
        dialect, server, select_messages=lambda messages: messages[len(messages) - last :], system_prompt="Be brief."
    )
    client.set_tools([ADD])
    server.answers += [dialect.reply("Hello.")]
    client.chat("Hi")
    server.answers += [*[dialect.reply(f"Step {k}.", CALLS) for k in range(3)], dialect.reply("Done.")]
    assert client.chat("1 and 2?") == "Done."
    assert len(server.bodies) == 5
    assert list(filter(None, map(dialect.refusal, server.bodies))) == []
    for step, body in enumerate(server.bodies[1:]):
        assert dialect.system_prompts(body) == ["Be brief."]
        sent = json.dumps(dialect.messages(body))
        assert "1 and 2?" in sent or isinstance(dialect, OpenAI)
        assert step == 0 or f"Step {step - 1}." in sent


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "in memory"])
def test_initial_history_is_as_if_it_had_grown(
    dialect: Dialect, server: Server, tmp_path: Path, recorded: bool
) -> None:
    """The next request of a seeded client is the one that the client would send from which the history was exported."""
    client = begin(dialect, server)
    server.answers += [dialect.reply("Grown.")]
    history = client.export_history()
    client.chat("And?")
    conversation = ConversationStore(tmp_path / "c") if recorded else None
    seeded = connect(dialect, server, conversation, system_prompt="Be brief.", initial_history=history)
    history.clear()  # a copy was taken
    seeded.set_tools([ADD])
    server.answers += [dialect.reply("Seeded.")]
    seeded.chat("And?")
    assert server.bodies[-1] == server.bodies[-2]
    if conversation is not None:
        assert conversation.get_messages() == seeded.export_history()
        conversation.close()


def test_an_initial_history_that_ends_in_a_tool_call(dialect: Dialect, server: Server) -> None:
    """Without a conversation too: the call gets a result in the history, once, that says that its outcome is unknown."""
    history = begin(dialect, server).export_history()[:2]
    client = connect(dialect, server, initial_history=history)
    for answer in ("Yes.", "Still."):
        server.answers += [dialect.reply(answer)]
        client.chat("Go on")
    assert client.export_history()[:2] == history
    assert json.dumps(client.export_history()).count("outcome is unknown") == 1
    assert dialect.messages(server.bodies[-1]) == client.export_history()[:-1]


def test_initial_history_that_is_refused(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A system message in it; what JSON cannot carry; one beside a conversation that has messages: nothing is written."""
    user: Any = json.loads(json.dumps(connect(dialect, server, initial_history=[]).export_history()))
    assert user == []
    for role in ("system", "developer"):
        with ConversationStore(tmp_path / role) as conversation:
            with pytest.raises(ValueError, match="system message"):
                connect(dialect, server, conversation, initial_history=[{"role": role, "content": "x"}])
            assert not conversation.exists()
    with pytest.raises(InvalidMessageError, match=r"initial_history\[0\]"):
        connect(dialect, server, initial_history=[{"role": "user", "content": ("x",)}])
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(messages=[{"role": "user", "content": "x"}])
        with pytest.raises(ValueError, match="cannot be combined"):
            connect(dialect, server, conversation, initial_history=[{"role": "user", "content": "x"}])
    with ConversationStore(tmp_path / "empty") as conversation:
        conversation.initialize()
        connect(dialect, server, conversation, initial_history=[{"role": "user", "content": "x"}])
        assert len(conversation.get_messages()) == 1
        assert conversation.get_metadata().provider == dialect.provider


def test_export_is_a_deep_copy_and_may_be_taken_while_a_turn_runs(dialect: Dialect, server: Server) -> None:
    """From another thread, in the middle of a turn: what was said so far; changing it changes nothing."""
    exported: list[Any] = []

    def look(a: int, b: int) -> int:
        thread = threading.Thread(target=lambda: exported.append(client.export_history()))
        thread.start()
        thread.join()
        return a + b

    server.answers += [dialect.reply("", CALLS), dialect.reply("3.")]
    client = connect(dialect, server)
    client.set_tools([Tool("add", "", SCHEMA, handler=look)])
    client.chat("Go")
    assert len(exported[0]) == 2
    exported[0][0].clear()
    assert client.export_history()[0]["role"] == "user"


def test_a_store_that_was_closed_is_not_written_to(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The conversation belongs to the caller: once it is closed, a turn is refused before anything is sent."""
    with ConversationStore(tmp_path / "c") as conversation:
        client = begin(dialect, server, conversation)
    sent = len(server.requests)
    with pytest.raises(ConversationNotLoadedError):
        client.chat("More?")
    assert len(server.requests) == sent


def test_what_is_recorded_beside_the_client_is_in_its_next_request(
    dialect: Dialect, server: Server, tmp_path: Path
) -> None:
    """The transcript is the truth: a compaction, or a message that the program adds itself, counts at the next turn."""
    with ConversationStore(tmp_path / "c") as conversation:
        client = begin(dialect, server, conversation)
        keep = conversation.get_messages()[-1:]
        conversation.replace_transcript([*client.export_history()[:1], *keep])
        server.answers += [dialect.reply("Yes.")]
        client.chat("Short now?")
        assert dialect.messages(server.bodies[-1]) == conversation.get_messages()[:-1]
        assert len(dialect.messages(server.bodies[-1])) == 3


def test_a_rewind_into_the_middle_of_a_tool_turn(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Undone to where a reply calls a tool: the record owes its result from then on, and the next turn pays it first."""
    with ConversationStore(tmp_path / "c") as conversation:
        client = begin(dialect, server, conversation)
        conversation.replace_transcript(conversation.get_messages()[:2])
        server.answers += [dialect.reply("Yes.")]
        client.chat("Go on")
        assert [r.extra for r in conversation.get_records()][2] is not None
        assert "outcome is unknown" in json.dumps(conversation.get_messages()[2])


def test_a_tool_that_records_something_itself(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """In the middle of a turn: a note, a message, whatever it is called; the next request has it, and its calls are paired."""
    calls: tuple[Call, ...] = (("note", {}), ("note", {}))
    server.answers += [dialect.reply("", calls), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.add("said by the tool")
        remark = conversation.get_messages()[0]

        def note() -> str:
            conversation.append_event({"tool_result": "mine", "at": 1})
            conversation.append_event({"tool_result": {"index": 0}})
            conversation.append_message(remark)
            return "noted"

        client.set_tools([Tool("note", "", {"type": "object"}, handler=note)])
        assert client.chat("Go") == "Yes."
        sent = dialect.messages(server.bodies[1])
        assert sent.count(remark) == 1 + 2
        assert json.dumps(sent).count("noted") == 2
        assert client.export_history() == conversation.get_messages()


def test_a_request_may_carry_less_than_the_record(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """``select_messages`` chooses; a result whose call it left out is left out too, and the record stays whole.

    So is a reply at the beginning, for a provider that refuses a request which opens with one.
    """
    with ConversationStore(tmp_path / "c") as conversation:
        begin(dialect, server, conversation)
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, select_messages=lambda messages: messages[-3:])
        server.answers += [dialect.reply("Yes.")]
        client.chat("Still there?")
        sent = dialect.messages(server.bodies[-1])
        assert sent == conversation.get_messages()[3 if isinstance(dialect, OpenAI) else 4 : 5]
        assert len(conversation.get_messages()) == 6


@pytest.mark.parametrize("provider", ["claude", "openai", "gemini"])
def test_the_client_of_the_documents(provider: Any, tmp_path: Path) -> None:
    """``create_client`` initializes the store that it is given; nothing is sent, so no server is needed."""
    with ConversationStore(tmp_path / "c") as conversation:
        client: Any = create_client(
            ChatConfig(provider=provider, token="t", system_prompt="p"), conversation=conversation
        )
        with client:
            client.add("Remember this.")
            assert conversation.get_messages() == client.export_history()
            assert len(client.export_history()) == 1


def test_what_was_retracted_is_not_sent(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A reply and its question are taken back, by other code of this process; the next turn goes on before them.

    Then down to a call: it owes its result again, and the one that was taken back is not it.
    """
    conversation = ConversationStore(tmp_path / "c")
    conversation.initialize(provider=dialect.provider, features=["retract"])
    client = begin(dialect, server, conversation)
    history = client.export_history()
    server.answers += [dialect.reply("I add again.", CALLS), dialect.reply("Three.")]
    assert client.chat("Once more?") == "Three."
    conversation.retract(len(client.export_history()) - len(history))
    server.answers += [dialect.reply("Yes.")]
    assert client.chat("Are you sure?") == "Yes."
    assert dialect.messages(server.bodies[-1])[:-1] == history
    while conversation.get_messages()[-1] != history[1]:
        conversation.retract()
    server.answers += [dialect.reply("I see.")]
    assert client.chat("And now?") == "I see."
    sent = dialect.messages(server.bodies[-1])
    assert "Three." not in json.dumps(sent)
    conversation.close()
