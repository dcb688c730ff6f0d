"""Conversations for asyncio and trio: the calls of ``ConversationStore``, ``ConversationLibrary`` and ``SearchIndex``, awaited.

.. code-block:: python

    import asyncio

    from transcript_store.aio import AsyncConversationStore

    async def main() -> None:
        async with AsyncConversationStore("agent/main") as conversation:
            await conversation.load_or_initialize(provider="claude")
            async with asyncio.TaskGroup() as tasks:   # many tasks that append at the same time share one write and one sync
                for n in range(32):
                    tasks.create_task(conversation.append_message({"role": "user", "content": f"Task {n}"}))
            print(len(await conversation.get_messages()))

    asyncio.run(main())

It needs the extra ``aio``.
"""

from transcript_store.errors import MissingExtraError

try:
    import anyio as _anyio  # noqa: F401
except ModuleNotFoundError as _error:
    if _error.name != "anyio":
        raise
    raise MissingExtraError(feature="transcript_store.aio", extra="aio") from _error

from transcript_store.aio._conversation import AsyncConversationStore
from transcript_store.aio._library import AsyncConversationLibrary, AsyncSearchIndex

__all__ = ["AsyncConversationLibrary", "AsyncConversationStore", "AsyncSearchIndex"]
