"""Each way that two processes may write to one conversation on a server: what its users would write, through the public API.

As a program: ``python -m benchmarks.drivers.two_writers WAY SERVER write NAME COUNT`` waits for a line on standard input, then stores so
many messages and says ``stored TEXT`` or ``refused TEXT CLASS`` of each; ``… read`` prints the texts that are there, in order, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class Way(NamedTuple):
    """Store a text; and all texts, in order."""

    append: Callable[[str], object]
    read: Callable[[], list[str]]


def ours(server: dict[str, Any]) -> Way:
    from transcript_store.backends import BackendConversation, ObjectStoreBackend, PostgresBackend

    own_id = "0195cafe-0000-4000-8000-000000000001"
    place = (
        PostgresBackend(server["url"], create=True)
        if server["kind"] == "postgres"
        else _objects(ObjectStoreBackend, server)
    )
    log = BackendConversation(place, own_id, hold_lock=False, lock_timeout_seconds=120)

    def read() -> list[str]:
        reader = BackendConversation(place, own_id, read_only=True)
        reader.load()
        return [message["content"] for message in reader.get_messages()]

    if not log.exists():
        log.initialize()
    log.load()
    return Way(lambda text: log.append_message({"role": "user", "content": text}), read)


def _objects(make: Callable[..., Any], server: dict[str, Any]) -> Any:
    return make(server["url"] + "/ours", **server["options"])


def strands(server: dict[str, Any]) -> Way:
    import boto3
    from strands.session.s3_session_manager import S3SessionManager
    from strands.types.session import SessionAgent, SessionMessage

    options = server["options"]
    session = boto3.Session(options["access_key_id"], options["secret_access_key"], region_name=options["region"])
    plain_client = session.client
    session.client = lambda *a, **k: plain_client(*a, **{**k, "endpoint_url": options["endpoint"]})
    manager = S3SessionManager("one", bucket="tests", prefix="strands", boto_session=session)
    if manager.read_agent("one", "agent") is None:
        manager.create_agent("one", SessionAgent(agent_id="agent", state={}, conversation_manager_state={}))
    known = len(manager.list_messages("one", "agent"))

    def append(text: str) -> None:  # as RepositorySessionManager.append_message: it numbers by what it has seen
        nonlocal known
        message: Any = {"role": "user", "content": [{"text": text}]}
        manager.create_message("one", "agent", SessionMessage.from_message(message, known))
        known += 1

    return Way(
        append, lambda: [found.to_message()["content"][0]["text"] for found in manager.list_messages("one", "agent")]
    )


def langgraph(server: dict[str, Any]) -> Way:
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.graph import START, MessagesState, StateGraph
    from psycopg.rows import dict_row

    connection: Any = psycopg.connect(server["url"], autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver = PostgresSaver(connection)
    saver.setup()
    graph = StateGraph(MessagesState)
    graph.add_node("nothing", lambda _: {})
    graph.add_edge(START, "nothing")
    agent = graph.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "one"}}
    return Way(
        lambda text: agent.invoke({"messages": [{"role": "user", "content": text}]}, config),
        lambda: [message.content for message in agent.get_state(config).values.get("messages", [])],
    )


def openai_agents(server: dict[str, Any]) -> Way:
    from agents.extensions.memory import SQLAlchemySession

    url = server["url"].replace("postgresql://", "postgresql+psycopg://")
    runner = asyncio.Runner()
    session = SQLAlchemySession.from_url("one", url=url, create_tables=True)
    runner.run(session.get_items())
    return Way(
        lambda text: runner.run(session.add_items([{"role": "user", "content": text}])),
        lambda: [str(item["content"]) for item in runner.run(session.get_items())],
    )


WAYS = {"ours": ours, "strands": strands, "langgraph": langgraph, "openai-agents": openai_agents}


def main(way: str, server: str, what: str, name: str = "", count: str = "0") -> None:
    here = WAYS[way](json.loads(server))
    if what == "read":
        print(json.dumps(here.read()))
        return
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(count)):
        text = f"{name}.{number}"
        try:
            here.append(text)
        except Exception as error:
            print("refused", text, type(error).__name__, flush=True)
        else:
            print("stored", text, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
