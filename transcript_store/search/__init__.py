"""Finding messages in a library, and listing a million conversations.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.search import SearchIndex

    library = ConversationLibrary("chats")
    with library.create(labels={"title": "A socket"}) as conversation:
        conversation.append_message({"role": "user", "content": "Why the socket timeout?"})
    with SearchIndex(library, cache="cache") as index:
        for hit in index.search('"socket timeout" role:user'):
            print(hit.title, hit.seq, hit.excerpt)
        print([summary.title for summary in index.list(limit=50)])

docs/search.md has the query language and the promises F9 to F11.
"""

from transcript_store.search._answers import Hit, IndexStatus, IndexUpdate, ListPage, Order, SearchResult, Sort
from transcript_store.search._catalogue import IndexSource, index_source, list_snapshots
from transcript_store.search._index import UPDATE_SECONDS, SearchIndex
from transcript_store.search._query import FILTERS

__all__ = [
    "FILTERS",
    "UPDATE_SECONDS",
    "Hit",
    "IndexSource",
    "IndexStatus",
    "IndexUpdate",
    "ListPage",
    "Order",
    "SearchIndex",
    "SearchResult",
    "Sort",
    "index_source",
    "list_snapshots",
]
