"""A conversation to look at: a page, which runs nothing of the transcript and asks the network for nothing (F12), or Markdown.

.. code-block:: python

    from transcript_store import ConversationStore
    from transcript_store.view import write_page

    with ConversationStore("chats/today") as conversation:
        conversation.load_or_initialize(messages=[{"role": "user", "content": "Where were we?"}])
    print(write_page("chats/today", "today.html").path)

A page needs the extra ``view``; Markdown needs nothing.
"""

import typing as _typing

from transcript_store._lazy import lazy_names as _opened

if _typing.TYPE_CHECKING:
    from transcript_store.view._pages import *
else:  # `calls` and `diffs`, which a terminal shows too, need none of it
    __getattr__, __dir__ = _opened(__name__, "_pages")
