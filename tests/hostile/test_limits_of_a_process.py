"""A file size limit, and no free file descriptor: an error, and the store continues once the limit is removed."""

from __future__ import annotations

import pytest

from tests.hostile.helpers import child
from transcript_store import verify


def test_a_file_size_limit_at_every_byte_of_a_record(conversation):
    """P7: RLIMIT_FSIZE tears a write at an exact byte: at every byte of a record and of a batch an append is an error,
    stores nothing and leaves everything before intact; and once the limit is raised the same store goes on.
    """
    printed = child(
        """
        import errno, os, resource, sys
        from transcript_store import ConversationStore, StorageError, verify
        store = ConversationStore(sys.argv[1])
        store.load()
        path = sys.argv[1] + "/transcript.jsonl"
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        messages, torn, fine = store.get_messages(), 0, 0
        for batch in ([{"n": 1}], [{"n": 2}, {"n": 3}]):
            length = sum(appended.length_bytes for appended in store.append_messages(batch))
            messages += batch
            for over in range(length + 1):
                before = open(path, "rb").read()
                resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + over, hard))
                try:
                    appended = store.append_messages(batch)
                    messages += batch
                    fine += 1
                    assert over >= sum(a.length_bytes for a in appended)
                except StorageError as error:
                    assert error.errno == errno.EFBIG, error
                    assert "Nothing of it was stored" in str(error), error
                    assert open(path, "rb").read() == before
                    torn += 1
                assert store.get_messages() == messages
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
                store.append_messages(batch[:1])
                messages += batch[:1]
                length = max(length, len(batch) * 110)
        store.close()
        store.load()
        assert store.recovery is None
        assert store.get_messages() == messages
        assert verify(sys.argv[1]).is_intact
        print(torn, fine)
        """,
        conversation,
    )
    torn, fine = map(int, printed.split())
    assert torn > 250
    assert fine >= 1


def test_no_file_descriptor_left(conversation):
    """P7: without a descriptor to spare appends go on, what needs one is refused with EMFILE, and works once there is one."""
    child(
        """
        import errno, os, resource, sys
        from transcript_store import ConversationStore, StorageError, verify
        def refused(call):
            try:
                call()
            except StorageError as error:
                assert error.errno == errno.EMFILE, error
                return
            raise AssertionError("not refused")
        store = ConversationStore(sys.argv[1])
        store.load()
        messages = store.get_messages()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        def exhaust(spare=0):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            free = [n for n in range(100) if not os.path.exists(f"/proc/self/fd/{n}")]
            resource.setrlimit(resource.RLIMIT_NOFILE, (free[spare], hard))
        for round in range(3):
            exhaust()
            store.append_message({"n": round})
            messages.append({"n": round})
            assert store.get_messages() == messages
            refused(lambda: store.update_metadata(model="x"))
            assert store.get_metadata().model is None
            refused(lambda: store.replace_transcript([]))
            refused(ConversationStore(sys.argv[1], read_only=True).load)
            refused(ConversationStore(sys.argv[1]).exists)
            refused(lambda: verify(sys.argv[1]))
            for spare in range(1, 6):
                exhaust(spare)
                try:
                    store.replace_transcript([])
                except StorageError as error:
                    assert error.errno == errno.EMFILE, error
                else:
                    messages = []
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert store.get_messages() == messages
            store.append_message({"after": round})
            messages.append({"after": round})
        store.close()
        store.load()
        assert store.get_messages() == messages
        assert verify(sys.argv[1]).is_intact, verify(sys.argv[1])
        """,
        conversation,
    )


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("operation", ["load", "initialize"])
@pytest.mark.parametrize("spare", range(6))
def test_few_file_descriptors_left_from_the_start(conversation, tmp_path, spare, operation):
    """P7: with any number of descriptors to spare, a first load() or initialize() works or is refused with EMFILE."""
    directory = conversation if operation == "load" else tmp_path / "new"
    child(
        """
        import errno, os, resource, sys
        from transcript_store import ConversationStore, StorageError
        store = ConversationStore(sys.argv[1])
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = [n for n in range(100) if not os.path.exists(f"/proc/self/fd/{n}")]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[int(sys.argv[2])], hard))
        try:
            getattr(store, sys.argv[3])()
        except StorageError as error:
            assert error.errno == errno.EMFILE, error
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        store.close()
        store.load_or_initialize()
        store.append_message({"n": 1})
        """,
        directory,
        spare,
        operation,
    )
    assert verify(directory).is_intact
