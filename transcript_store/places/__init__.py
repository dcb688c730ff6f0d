"""Conversations that live on an engine instead of a disk: a log of slots, each written once by the engine's own conditional write.

A ``Place`` is what an engine must offer, and ``ConversationLibrary(place)`` is the library on it. This is an extra room: nothing of
the core imports it. docs/engines.md says what is different there.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.places import ConversationTakenOverError
    from transcript_store.testing import SimulatedPlace

    library = ConversationLibrary(SimulatedPlace())
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

from transcript_store._doors import opened as _opened

if _typing.TYPE_CHECKING:
    from transcript_store.places._cells import *
    from transcript_store.places._conversation import *
    from transcript_store.places._errors import *
    from transcript_store.places._examining import *
    from transcript_store.places._library import *
    from transcript_store.places._objects import *
    from transcript_store.places._place import *
    from transcript_store.places._postgres import *
    from transcript_store.places._restoring import *
    from transcript_store.places._shipping import *
    from transcript_store.places._shipping_many import *
    from transcript_store.places._snapshots import *
    from transcript_store.places._urls import *
else:
    from transcript_store.places import _library  # noqa: F401 (it says what a library on a place is: a place does not)

    __getattr__, __dir__ = _opened(
        __name__,
        "_errors",
        "_place",
        "_cells",
        "_conversation",
        "_examining",
        "_library",
        "_objects",
        "_postgres",
        "_restoring",
        "_shipping",
        "_shipping_many",
        "_snapshots",
        "_urls",
    )
