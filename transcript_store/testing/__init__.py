"""The public test kit: a disk that can lose power, to test your own agent on, and the contract of a snapshot store.

.. code-block:: python

    from transcript_store import ConversationStore
    from transcript_store.testing import SimulatedFileSystem

    disk = SimulatedFileSystem()
    with ConversationStore("/conversation", file_system=disk) as conversation:
        conversation.initialize()
        conversation.append_message({"role": "user", "content": "stored"})
        for after_power_cut in disk.power_failures():
            with ConversationStore("/conversation", file_system=after_power_cut) as survivor:
                survivor.load()
                assert survivor.get_messages() == [{"role": "user", "content": "stored"}]

A ``SnapshotStore`` of your own (a database, an object store) keeps its contract if this raises nothing:

.. code-block:: python

    from transcript_store import MemorySnapshotStore
    from transcript_store.testing import check_snapshot_store

    check_snapshot_store(MemorySnapshotStore)

A persistent chat client of your own (another provider) keeps its contract if ``check_chat_client`` raises nothing; it is given
a ``ChatBench``: clients that speak to a model whose replies are scripted. ``tests/chat/test_contract.py`` has ours.
"""

import typing as _typing

from transcript_store._doors import opened as _opened

if _typing.TYPE_CHECKING:
    from transcript_store.testing._chat_contract import *
    from transcript_store.testing._crash_test import *
    from transcript_store.testing._simulated import *
    from transcript_store.testing._snapshot_contract import *
else:  # a test of a disk needs no chat clients
    __getattr__, __dir__ = _opened(__name__, "_simulated", "_snapshot_contract", "_crash_test", "_chat_contract")
