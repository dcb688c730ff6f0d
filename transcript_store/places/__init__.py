"""Conversations that live on an engine instead of a disk: a log of slots, each written once by the engine's own conditional write.

A ``Place`` is what an engine must offer; ``PlacedLog`` is one conversation on it. This is an extra room: nothing of the core
imports it, and ``ConversationStore`` and ``ConversationLibrary`` do not know it yet. docs/engines.md says what stands.

.. code-block:: python

    from uuid import uuid4

    from transcript_store.places import ConversationTakenOverError, PlacedLog
    from transcript_store.testing import SimulatedPlace

    place, id = SimulatedPlace(), str(uuid4())
    here = PlacedLog(place, id, holder="worker-1")
    here.create(provider="claude")
    here.append_message({"role": "user", "content": "Hello"})

    there = PlacedLog(place, id, holder="worker-2")       # another host, which takes over
    there.load(take_over=True)
    assert there.get_messages() == [{"role": "user", "content": "Hello"}]

    try:
        here.append_message({"role": "user", "content": "Are you there?"})
    except ConversationTakenOverError as error:
        assert error.holder["name"] == "worker-2"         # and nothing of it is stored
"""

import typing as _typing

from transcript_store._doors import opened as _opened

if _typing.TYPE_CHECKING:
    from transcript_store.places._errors import *
    from transcript_store.places._objects import *
    from transcript_store.places._place import *
    from transcript_store.places._placed_log import *
    from transcript_store.places._postgres import *
else:
    __getattr__, __dir__ = _opened(__name__, "_errors", "_place", "_placed_log", "_objects", "_postgres")
