"""Durable conversations for AI agents: an append-only transcript that never loses a message.

The public names of seven modules can be imported from here:

* ``conversation``: one conversation, ``ConversationStore``, and what its calls return;
* ``library``: many conversations, ``ConversationLibrary``;
* ``maintenance``: ``verify``, ``salvage`` and ``repair``;
* ``snapshots``: immutable copies, ``Snapshot`` and ``FileStore``;
* ``keys``: keys of sealed conversations, ``KeyProvider``;
* ``errors``: every error that this package raises on purpose;
* ``hints``: what to do about an error.

Public too, under their own names: ``transcript_store.messages``, ``histories``, ``file_names``, ``display``,
``sources``, ``importing``, ``exporting``, ``keeping``, ``search``, ``usage``, ``secrets``, ``transcripts``, ``view``,
``mcp``, ``aio``, ``chat``, ``integrations``, ``backends`` and ``testing``. Everything else may change.
"""

import typing as _typing

from transcript_store._lazy import lazy_names as _opened

if _typing.TYPE_CHECKING:
    from transcript_store.conversation import *
    from transcript_store.errors import *
    from transcript_store.hints import *
    from transcript_store.keys import *
    from transcript_store.library import *
    from transcript_store.maintenance import *
    from transcript_store.snapshots import *
else:  # names are looked up in this order: modules that import fast come first
    __getattr__, __dir__ = _opened(
        __name__, "hints", "errors", "conversation", "library", "maintenance", "snapshots", "keys"
    )

__version__ = "0.3.0"
