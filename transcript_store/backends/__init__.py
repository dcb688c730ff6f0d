"""Conversations on a backend instead of a disk: a log of slots, each written once by the backend's own conditional write.

A ``Backend`` is the interface to PostgreSQL or an object store, and ``ConversationLibrary(backend)`` is the library on
it. The core never imports this folder. docs/backends.md lists the differences.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.backends import ConversationTakenOverError
    from transcript_store.testing import SimulatedBackend

    library = ConversationLibrary(SimulatedBackend())
    here = library.create(provider="claude", holder="worker-1")
    here.append_message({"role": "user", "content": "Hello"})

    there = library.open(here.id, take_over=True, holder="worker-2")       # another host, which takes over
    assert there.get_messages() == [{"role": "user", "content": "Hello"}]

    try:
        here.append_message({"role": "user", "content": "Are you there?"})
    except ConversationTakenOverError as error:
        assert error.holder["name"] == "worker-2"                          # and nothing of it is stored
"""

import typing as _typing

from transcript_store._lazy import lazy_names as _opened

if _typing.TYPE_CHECKING:
    from transcript_store.backends._addresses import *
    from transcript_store.backends._backend import *
    from transcript_store.backends._backing_up import *
    from transcript_store.backends._backup_file import *
    from transcript_store.backends._checks import *
    from transcript_store.backends._library import *
    from transcript_store.backends._objects import *
    from transcript_store.backends._postgres import *
    from transcript_store.backends._restoring import *
    from transcript_store.backends._shipping import *
    from transcript_store.backends._snapshots import *
    from transcript_store.backends._storage import *
else:
    from transcript_store.backends import _library  # noqa: F401 (it sets the class of a backend's library, which the backend does not know)

    __getattr__, __dir__ = _opened(
        __name__,
        "_backend",
        "_storage",
        "_checks",
        "_library",
        "_objects",
        "_postgres",
        "_restoring",
        "_shipping",
        "_backup_file",
        "_backing_up",
        "_snapshots",
        "_addresses",
    )
