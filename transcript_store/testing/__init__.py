"""The public test kit: a simulated disk that can lose power, a crash test for agents, and contracts for your own classes.

``SimulatedFileSystem`` is the disk. Here every state is tried that the disk may be in after a power loss:

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

``crash_test`` stops an agent at each step and checks what its next process does. docs/testing.md has an example.

``check_snapshot_store`` raises ``AssertionError`` if a ``SnapshotStore`` of your own (a database, an object store) breaks its
contract:

.. code-block:: python

    from transcript_store import MemorySnapshotStore
    from transcript_store.testing import check_snapshot_store

    check_snapshot_store(MemorySnapshotStore)

``check_key_provider`` does the same for a ``KeyProvider`` of your own (a keyring, a vault, a key management service).

``check_chat_client`` does the same for a persistent chat client of your own (another provider). You give it a ``ChatBench``, which
makes clients that talk to a model with scripted replies. ``tests/chat/test_contract.py`` has those of this package.

``check_format`` does it for a format of your own, with samples of it (docs/import.md, "Add a format"). ``MemorySource`` and
``MemoryTables`` are a file and a database in memory, for more tests of a reader.

``check_integration`` does it for a framework's store of conversations (docs/integrations.md, "Write another"). You give it an
``IntegrationBench``.

``SimulatedBackend`` and ``SimulatedObjectStore`` are backends in memory that lose, delay and repeat requests, and ``check_backend``
checks a backend of your own against the contract of ``backends.Backend`` (docs/backends.md).

With Hypothesis (the extra ``testing``) there are more, in modules of their own: ``testing.strategies`` draws messages, conversations,
damaged files and schedules of crashes; ``testing.machines`` has long lives at random; ``testing.profiles`` says how long to look.
"""

import typing as _typing

from transcript_store._lazy import lazy_names as _opened

if _typing.TYPE_CHECKING:
    from transcript_store.testing._backend_contract import *
    from transcript_store.testing._chat_contract import *
    from transcript_store.testing._crash_test import *
    from transcript_store.testing._format_contract import *
    from transcript_store.testing._format_samples import *
    from transcript_store.testing._integration_contract import *
    from transcript_store.testing._key_provider_contract import *
    from transcript_store.testing._simulated_backend import *
    from transcript_store.testing._simulated_machine import *
    from transcript_store.testing._snapshot_contract import *
else:  # a test that only needs the disk must not import the chat clients
    _doors = (
        "_simulated_machine",
        "_snapshot_contract",
        "_key_provider_contract",
        "_crash_test",
        "_format_contract",
        "_format_samples",
        "_integration_contract",
        "_simulated_backend",
        "_backend_contract",
        "_chat_contract",  # last: the modules after it need the chat clients
    )
    __getattr__, __dir__ = _opened(__name__, *_doors)
