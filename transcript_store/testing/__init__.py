"""The public test kit: a disk that can lose power, to test your own agent on.

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
"""

from transcript_store.testing._simulated import Call, SimulatedFileSystem, SimulatedStop

__all__ = ["Call", "SimulatedFileSystem", "SimulatedStop"]
