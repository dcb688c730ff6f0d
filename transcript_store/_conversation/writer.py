"""How does the process that holds the lock write a conversation?

Order of writes (docs/durability.md says why each sync is there):

* create: lock; metadata with a void mark; transcript under a temporary name, sync, **rename**, sync the folder; metadata.
* replace: sync the old transcript; link it into ``archive/``, sync that; new transcript as above, **rename**; metadata.
* metadata: sync the transcript, so that the mark is true; temporary file, sync, **rename**, sync the folder.

Every change of a whole conversation (a new generation, the metadata, the archive, the seal) ends in one such commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from transcript_store._conversation import archive
from transcript_store._conversation.arguments import ends_of
from transcript_store._conversation.layout import FILE_IN_PLACE, header_of, occupant, occupant_of, sync_name
from transcript_store._conversation.metadata import GONE, SEALS, Sealing, encode_document, require_to_fit, with_gone
from transcript_store._conversation.storage import State, Storage, StorageOptions
from transcript_store._json.parts import begins_turn, calls_left_open
from transcript_store._json.times import format_time
from transcript_store._log.header import Image, begins_at
from transcript_store._log.log import AppendResult, CannotCutBackError, Prepared, purge_quarantine
from transcript_store._log.record import RETRACT, SEALED, Copied, Entry, Mark, Position
from transcript_store._os.directory import Folder, identity
from transcript_store._os.filesystem import FileSystem, NotOursError, SyncFailedError, refusals, storage_error
from transcript_store._os.names import ARCHIVE, KEY, LOCK, METADATA, QUARANTINE, TRANSCRIPT
from transcript_store._sealing import data_key
from transcript_store._sealing.keys import Keyring, encode_key_file, read_key_file_of
from transcript_store.display import many
from transcript_store.errors import (
    ConversationChangedError,
    ConversationExistsError,
    ConversationLockedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptTranscriptError,
    DataKeyExhaustedError,
    FeatureNotEnabledError,
    GenerationNotFoundError,
    NotSealedError,
    PoisonedError,
    StorageError,
)
from transcript_store.hints import Hint

logger = logging.getLogger("transcript_store.storage")

Entries = Iterable[Entry | Copied]
MARK_EVERY = 1000
"""Records between two marks of a writer that syncs each append: two more syncs in a thousand are not noticeable."""

_INTACT = "What was there before is in place and intact"
_UNKNOWN = "Whether it is on the disk is unknown, and this store writes nothing more"


class Writer(Storage):
    """A conversation as its one writer sees it."""

    writable = True

    def __init__(self, files: FileSystem, path: str, options: StorageOptions) -> None:
        super().__init__(files, path, options)
        self._sync_appends = options.sync_appends
        self._mark_due = MARK_EVERY
        """If appends are synced, the record with this number renews the mark."""
        self._failure = ""
        """The system's message for the sync that failed."""
        self.was_looked_at = False
        """True if the file was compared with memory in this call and since its last write."""

    @property
    def is_poisoned(self) -> bool:
        """True if a sync failed, so that nothing more is written."""
        return self.state is State.POISONED

    @property
    def is_in_doubt(self) -> bool:
        """True if the last write may be stored although an error was raised. Then it must not be repeated."""
        return self.is_poisoned

    # ---- begin ---------------------------------------------------------------------------------------------------

    def create(
        self,
        members_at: Callable[[str], dict[str, Any]],
        entries: Entries,
        features: Sequence[str] = (),
        count: int | None = None,
    ) -> None:
        """Create the conversation with its first records; ``members_at(time)`` returns its metadata.

        ``count`` is the number of records, if they have no length. With keys the conversation is sealed.

        The commit is the rename of the transcript to its name. Raises ``ConversationExistsError`` if the folder holds
        anything but the leftovers of an unfinished create; then nothing was changed.
        """
        self._refuse_occupied(occupant(self.files, self.path))
        members, image = self._beginning(members_at, entries, features, count)
        doing = "create the conversation"
        with refusals(self.path, doing, "There is none yet"):
            while True:
                self._make_folder()
                self._refuse_occupied(occupant_of(self.folder))  # not even a lock is put into a folder that is not ours
                if self.take_lock():
                    break
            self._refuse_occupied(occupant_of(self.folder))  # another process may have been faster
            self.folder.sweep()
            # With a null mark and before the transcript: if we die now, occupant_of() recognizes an unfinished create,
            # and the next initialize() reuses the folder. The rename below is the commit; renew_mark() then writes the
            # real mark.
            self.folder.replace_file(METADATA, [self.document(members, None)])
            if self.sealing is not None:
                # After the void mark: a key file alone is never taken for a leftover and overwritten.
                self.folder.replace_file(KEY, [self.sealing.key_file])
            try:
                self._put_in_place(image, members, self.sealing)
            except SyncFailedError as error:
                unknown = "Whether there is one now is unknown"
                raise storage_error(error, self.path, doing, unknown, Hint.CHECK_WITH_EXISTS) from error
        self.state = State.READY
        self.renew_mark()

    def create_aside(
        self,
        parent: Folder,
        name: str,
        members_at: Callable[[str], dict[str, Any]],
        entries: Entries,
        features: Sequence[str] = (),
    ) -> None:
        """Write a whole conversation under a name that no process looks for; leave it closed.

        No other process knows the name, so there is no lock. The caller syncs everything before it renames the folder,
        so there is no order and no sync here. No file is removed or replaced: that would cost more than writing it.
        """
        members, image = self._beginning(members_at, entries, features)
        self.files.make_directory(parent.handle, name)
        with Folder(self.files, parent.path_of(name), self.files.open_directory(name, parent.handle)) as folder:
            if self.sealing is not None:
                folder.write_new(KEY, [self.sealing.key_file])
            folder.write_new(TRANSCRIPT, image.pieces())
            updated_at = max(members["updated_at"], format_time(image.last_at_us))
            mark = Mark(members["generation"], image.end)
            folder.write_new(METADATA, [self.document({**members, "updated_at": updated_at}, mark)])

    def _beginning(
        self,
        members_at: Callable[[str], dict[str, Any]],
        entries: Entries,
        features: Sequence[str],
        count: int | None = None,
    ) -> tuple[dict[str, Any], Image]:
        members = members_at(begins_at(self.log.stamp(), entries)[1])
        keys = self.options.keys
        if keys is not None:
            self.sealing = self._new_sealing(keys, members["id"])  # a provider that raises: nothing is changed
            kept = {name: value for name, value in members.items() if name not in (SEALS, GONE)}
            members = {**kept, SEALS: 1}
        return members, self.image_of(members, entries, features, self.sealing, count)

    def _new_sealing(self, keys: Keyring, conversation: str) -> Sealing:
        """The data key of a conversation that is being created."""
        return Sealing.new(keys, conversation, self.files, f"{self.path}/{KEY}")

    def _make_folder(self) -> None:
        """Create the folder, and create it again if it is moved away (deleted, for example) between two calls."""
        for attempts_left in (2, 1, 0):
            try:
                self.folder.take_over(Folder.make(self.files, self.path))
                return
            except (FileExistsError, NotADirectoryError):
                self._refuse_occupied(FILE_IN_PLACE)
            except FileNotFoundError:
                if not attempts_left:
                    raise  # a file system in which nothing can be created

    def _refuse_occupied(self, what: str | None) -> None:
        if what is not None:
            raise ConversationExistsError(path=self.path, reason=what)

    def take_lock(self, *, can_read_only: bool = False) -> bool:
        """Take the writer's lock, as :meth:`Lock.take` does; False if the folder was moved away, or removed, before it was taken."""
        try:
            self.lock.take(self.options.lock_timeout_seconds)
            # The lock is that of the folder that was opened. A delete may have moved this folder to the trash, and
            # another conversation may be at the path now.
            if self.folder.is_at_its_path():  # also False for a folder that was removed before it was locked
                return True
            self.lock.release()
            return False
        except NotOursError as error:
            raise self.corrupt("foreign", f"{LOCK}: {error.reason}") from None
        except OSError as error:
            raise self.no_lock(error, can_read_only=can_read_only) from error

    def no_lock(self, error: OSError, *, can_read_only: bool = False) -> StorageError:
        return storage_error(error, self.folder.path_of(LOCK), "take the writer's lock", can_read_only=can_read_only)

    def load_what_is_there(self) -> bool:
        # A process that was killed before it synced the folder's name left one that a power cut would undo, and with it
        # everything that is appended from now on (P1).
        sync_name(self.folder)
        if self.options.keys is not None:
            self.meet_key(self.options.keys)
        if not self.take_lock(can_read_only=True):
            return False
        self._load_locked()
        return True

    def meet_key(self, keys: Keyring) -> None:
        """Unwrap the data key, or make one for a seal. The load reports a missing or damaged key file."""
        # Before the lock is taken: a key provider may be a slow server, and other writers would wait for it.
        header = header_of(self.folder)
        if header is None:
            return
        with suppress(CorruptKeyFileError):
            if header.is_sealed:
                self.sealing_ahead = Sealing.of(keys, self.folder, header.conversation, self.sealing)
            elif self.options.accept_plain:
                self.sealing_ahead = self.sealing_to_begin_with(keys, header.conversation)

    def _load_locked(self) -> None:
        """Load with the lock held; renew the mark if the transcript grew past it."""
        self.look_at_all()
        if self.was_repaired:
            self.accept()
        else:
            self.renew_mark()

    def look_at_all(self) -> None:
        """Load with the lock held."""
        # A process that was killed between a rename and its sync left a name that a power loss would undo, and with it
        # everything appended under that name.
        self.folder.sync()
        self.folder.sweep(ARCHIVE, QUARANTINE)
        self.take_in()
        archive.tidy(self.folder, self.log)
        if self.log.hard_links() > 1:
            what = "the transcript has a second name (a hard link): a write to one of them changes both"
            logger.warning("%s: %s", self.path, what)
        self.state = State.READY

    # ---- append --------------------------------------------------------------------------------------------------

    def require_head(self, head: str) -> None:
        """Raise ``ConversationChangedError`` unless the transcript ends in this head."""
        self._ensure_writable()  # an interrupted append may be stored: memory does not have it yet
        if (found := self.log.end.head.decode()) != head:
            reason = f"the transcript ends in {found}, and not in {head!r:.40}; nothing was stored"
            raise ConversationChangedError(path=self.path, reason=reason, expected_head=head, head=found)

    def append(self, entries: Sequence[Entry]) -> list[AppendResult]:
        """Append records as one. With ``sync_appends`` they are on disk on return."""
        if not self.was_looked_at:
            self._ensure_writable()
        if self.log.header.is_sealed:
            self._require_seals(len(entries))
        prepared = self.log.prepare(entries)
        self.store(prepared)
        return prepared.stored

    def retract(self, count: int) -> AppendResult:
        """Retract the last so many messages; raises ``ValueError`` if there are fewer.

        One record names all numbers from the first of them to the last: any other record between them is retracted
        already, or cannot be.
        """
        self._ensure_writable()
        # A reader of an older version would show retracted messages, so the generation has to require the feature
        # (P20).
        if not self.log.header.can_retract:
            raise FeatureNotEnabledError(path=self.path, feature=RETRACT)
        seqs, lines, tail = self.log.last_messages(count)
        if len(seqs) < count:
            raise ValueError(f"{many(count, 'message')} cannot be retracted: there are {len(seqs)}")
        if open_calls := calls_left_open(self.log.messages_in(lines)):
            what = f"the result of {many(len(open_calls), 'call')} is retracted, but the call stays"
            logger.warning("%s: %s: retract_turn() keeps them together", self.path, what)
        self._require_seals(1)
        prepared = self.log.prepare_retraction(seqs[-1], seqs[0])
        self.store(prepared)
        tail.taken_back.add(seqs[-1], seqs[0])
        self.log.pass_over(tail._replace(through_seq=prepared.end.seq))
        return prepared.stored[0]

    def retract_turn(self) -> AppendResult:
        """Retract the messages from the last prompt on; raises ``ValueError`` if there is none."""
        self._ensure_writable()
        if not self.log.header.can_retract:
            raise FeatureNotEnabledError(path=self.path, feature=RETRACT)
        count = 8
        while True:
            messages = self.log.messages(count)
            begins = [place for place, message in enumerate(messages) if begins_turn(message)]
            if begins:
                return self.retract(len(messages) - begins[-1])
            if len(messages) < count:
                raise ValueError("there is no turn to retract: no message is a prompt of the user")
            count *= 4

    def prepare(self, entries: Sequence[Entry]) -> Prepared:
        """The first half of an append, for a group: everything but the write."""
        self._ensure_writable()
        if self.log.header.is_sealed:
            self._require_seals(len(entries))
        return self.log.prepare(entries)

    def _require_seals(self, count: int) -> None:
        """Raise if the data key may not seal so many more texts, or if it is needed and missing."""
        self.log.sealer_to_write()
        if self.sealing is not None:
            sealed = self._seals()
            if sealed + count > data_key.MOST_SEALS:
                raise DataKeyExhaustedError(path=self.path, count=sealed)

    def _seals(self) -> int:
        """How many texts the data key has sealed."""
        return int(self.members.get(SEALS) or 0) + self.log.end.seq

    def store(self, prepared: Prepared) -> None:
        """The second half of an append. Call it directly after the first."""
        self.was_looked_at = False
        try:
            self.log.append(prepared, sync=self._sync_appends)
        except CannotCutBackError as error:
            raise self._poison(error, "append") from error
        except SyncFailedError as error:
            raise self._poison(error, "sync what was appended") from error
        except OSError as error:
            nothing = "Nothing of it was stored; everything before is intact"
            raise storage_error(error, self.folder.path_of(TRANSCRIPT), "append", nothing) from error
        # The mark only saves the next load time: noting it with each append would cost two more syncs.
        if self._sync_appends and prepared.end.seq >= self._mark_due:
            self.renew_mark()

    # ---- changes of the whole conversation: each ends in one commit, the rename of a file --------------------------------------

    def replace(
        self, entries: Entries, members: dict[str, Any], features: Sequence[str] = (), count: int | None = None
    ) -> None:
        """Start the next generation with these records and this metadata: one commit, the rename of its transcript.

        It has the features of the live one, and these. ``count`` is the number of records, if they have no length.
        """
        self._ensure_writable()
        count = len(entries) if isinstance(entries, Sequence) else count
        self._require_seals((count or 0) + 1)
        self._begin_sealed_by(self.sealing, entries, members, {*self.log.header.features, *features}, count)

    def keep(
        self, seqs: Collection[int], changed: Mapping[int, Entry], members: dict[str, Any], features: Sequence[str] = ()
    ) -> None:
        """Start the next generation with these records of the live one, copied unchanged or with other contents."""
        self._ensure_writable()
        count = self.log.end.seq
        if not_there := [seq for seq in ends_of(seqs) if not 1 <= seq <= count]:
            raise ValueError(f"there is no record {min(not_there)}: the transcript has {many(count, 'record')}")
        for _ in self.log.copies_of(changed, changed):
            pass  # an impossible change is refused before anything is written
        self.replace(self.log.copies_of(seqs, changed), members, features, len(seqs))

    def _begin_sealed_by(
        self,
        sealing: Sealing | None,
        entries: Entries,
        members: dict[str, Any],
        features: Iterable[str],
        count: int | None,
    ) -> None:
        self.log.complete()  # only verified records are archived
        live, end = self.log.header.generation, self.log.end
        members = {**members, "generation": live + 1, "updated_at": self._now()}
        if sealing is not None:
            members[SEALS] = self._seals() + 1
        replaces = {"generation": live, "records": end.seq, "head": end.head.decode()}
        image = self.image_of(members, entries, sorted(features), sealing, count, replaces=replaces)
        with self._changing("replace the transcript"):
            self.log.sync()
            self.state = State.CHANGING
            # The key file before the data that needs it: killed in between, the folder has a key that nothing uses yet.
            if sealing is not None and sealing is not self.sealing:
                self.folder.replace_file(KEY, [sealing.key_file])
            archive.archive_live(self.folder, self.log)
            self._put_in_place(image, members, sealing)
            self.state = State.READY
        self.renew_mark()

    def go_on_with(self, transcripts: Iterable[Image], document: bytes, key_file: bytes | None) -> None:
        """Adopt newer state of this conversation from elsewhere: its transcripts from the live generation on, and then
        its metadata.json.

        Each transcript is a commit, as a replace is; that of the live generation starts with the existing records.
        ``key_file`` is put beside them if the folder has no key. On return, and if it raises, the state is CHANGING and the
        caller must load again: in memory the metadata is the header's.
        """
        self._ensure_writable()
        earlier = "It is in an earlier state of the conversation; repeat the call"
        with self._changing("bring the folder up to date", earlier):
            self.state = State.CHANGING
            if key_file is not None and self.folder.status(KEY) is None:
                self.folder.replace_file(KEY, [key_file])  # before the data that it seals
            for image in transcripts:
                if image.header.generation > self.log.header.generation:
                    archive.archive_live(self.folder, self.log)
                self._put_in_place(image, image.header.metadata, None)
            self.folder.replace_file(METADATA, [document])

    def image_of(
        self,
        members: dict[str, Any],
        entries: Entries,
        features: Iterable[str],
        sealing: Sealing | None,
        count: int | None = None,
        **more: Any,
    ) -> Image:
        """The transcript of a new generation, sealed if there is a data key; raises if its metadata is too long."""
        required = [feature for feature in features if feature != SEALED]
        require_to_fit(members, encode_document(members, None) if sealing is None else sealing.document(members, None))
        if sealing is None:
            return self.log.image(members, entries, required, **more)
        more["begins_with"] = len(entries) if isinstance(entries, Sequence) else count
        sealer = sealing.sealer(members["generation"])
        stored = sealing.stored(members)
        return self.log.image(stored, entries, [*required, SEALED], sealer=sealer, check=sealing.checked, **more)

    # ---- seal and unseal -----------------------------------------------------------------------------------------

    def seal(self, keys: Keyring, *, keep_plain: bool) -> None:
        """Start a sealed generation with the same records, if the live one is plaintext; then remove the plaintext,
        unless it is kept. After a crash, call it again to continue.
        """
        self._ensure_writable()
        if not self.log.header.is_sealed:
            with refusals(self.path, "seal the conversation", "It is unchanged"):
                sealing = self.sealing_to_begin_with(keys, self.log.header.conversation)
                live = self.log.header.generation
                members = with_gone(self.members, live, {*archive.numbers(self.folder), live})
            count = self.log.end.seq
            self._begin_sealed_by(sealing, self.log.copies(count), members, self.log.header.features, count)
        if not keep_plain:
            with refusals(self.path, "remove the plaintext files", "It is sealed, and some plaintext files are left"):
                plain = archive.plain_numbers(self.folder)
            for number in plain:
                self.delete_generation(number)
            self.purge_quarantine()

    def sealing_to_begin_with(self, keys: Keyring, conversation: str) -> Sealing:
        """For a seal: the folder's data key, since earlier generations may be sealed with it, or a fresh one.

        Under the lock it is the one that was read before, unless the key file has changed.
        """
        from transcript_store._conversation.key_changes import opens_folder  # only a seal needs it

        ahead, path = self.sealing_ahead, self.folder.path_of(KEY)
        if self.folder.status(KEY) is not None:
            wrapped = read_key_file_of(self.folder, conversation)
            if ahead is not None and ahead.key_file == encode_key_file(wrapped):
                return ahead
            return Sealing.unwrapped(keys, wrapped, self.files, path, partial(opens_folder, self.folder, conversation))
        if ahead is not None and ahead.key.conversation == conversation:
            return ahead
        return Sealing.new(keys, conversation, self.files, path)

    def unseal(self) -> None:
        """Start a plaintext generation with the same records. Earlier ones stay sealed, and their key stays beside them."""
        self._ensure_writable()
        if self.log.header.is_sealed:
            self._require_seals(0)
            members = {name: value for name, value in self.members.items() if name not in (SEALS, GONE)}
            count = self.log.end.seq
            self._begin_sealed_by(None, self.log.copies(count), members, self.log.header.features, count)

    def accept(self) -> None:
        """Write the keyed checks that a repair without the key left out, so that it counts from now on."""
        live = self.log.header.generation
        with self._changing("accept the repair"):
            members = with_gone(self.members, live, {*archive.numbers(self.folder)})
            self._remember({**members, SEALS: self._seals()})
        self.was_repaired = False

    def write_metadata(self, members: dict[str, Any]) -> None:
        """Replace the metadata document, with a mark after everything stored."""
        self._ensure_writable()
        members = {**members, "updated_at": self._now()}
        if self.log.header.is_sealed:
            self._require_seals(1)
            members[SEALS] = int(members.get(SEALS) or 0) + 1
        document = self.document(members, Mark(self.log.header.generation, self.log.end))
        require_to_fit(members, document)
        with self._changing("write the metadata"):
            self._remember(members, document)

    def delete_generation(self, number: int) -> None:
        """Remove an earlier generation from the archive, durably."""
        self._ensure_writable()
        self.log.sealer_to_write()  # without the key its removal cannot be stated
        with self._changing("delete an earlier generation"):
            # What it says of the generation before it is written to the metadata first: a crash in between must not
            # lose it.
            members = archive.without(self.folder, self.members, number)
            if self.sealing is not None and number < self.log.header.generation:
                there = {*archive.numbers(self.folder)} - {number}
                members = with_gone(members, self.log.header.generation, there)
            if members != self.members:
                self._remember(members)
            archive.remove_archived(self.folder, self.log, number)

    def purge_quarantine(self) -> int:
        """Remove everything in quarantine/, durably; returns how many files it had."""
        self._ensure_writable()
        with self._changing("purge the quarantine"):
            return purge_quarantine(self.folder)

    # ---- before and after a commit ---------------------------------------------------------------------------------

    def _now(self) -> str:
        """The time of a change: never before the last change, nor before the last record."""
        return max(str(self.members["updated_at"]), self.log.stamp()[1])

    @contextmanager
    def _changing(self, doing: str, consequence: str = _INTACT) -> Iterator[None]:
        """A change that ends in a commit.

        A refusal of the system before the commit leaves everything unchanged, and so does damage that is found before
        it. A failed sync poisons. After anything else (an interruption) the state stays CHANGING, and the next call
        reads the folder again.
        """
        self.was_looked_at = False
        try:
            self._require_the_lock()
            yield
        except SyncFailedError as error:
            raise self._poison(error, doing) from error
        except StorageError:
            raise  # it says what still holds
        except OSError as error:
            self.state = State.READY
            raise storage_error(error, self.path, doing, consequence) from error
        except CorruptTranscriptError:
            self.state = State.READY  # whole records can still be read, and appended to
            raise

    def _poison(self, error: OSError, doing: str) -> Exception:
        self.state, self._failure = State.POISONED, str(error.strerror)
        return storage_error(error, self.folder.path_of(TRANSCRIPT), doing, _UNKNOWN, Hint.LOAD_TO_SEE)

    def _put_in_place(self, image: Image, members: dict[str, Any], sealing: Sealing | None) -> None:
        """Write a new transcript and give it its name: the commit of a create and of a replace.

        Raises ``SyncFailedError`` if the rename is in doubt, any other ``OSError`` if it did not happen.
        """
        temporary, handle = self.folder.write_temporary(image.pieces())
        try:
            inode = identity(self.files.handle_status(handle))
            self._before_commit(image, handle)
            self.files.rename(self.folder.handle, temporary, TRANSCRIPT)
        except BaseException:
            with suppress(OSError):
                self.files.close(handle)
            self.folder.discard(temporary)
            raise
        # From the rename on, the old handle is the archived file. If the sync below fails, the state stays CHANGING or
        # POISONED, but nothing can be appended to the archive.
        self.log.adopt(image, handle, inode)
        self.members, self.mark, self.sealing = members, None, sealing
        self.folder.sync()

    def _before_commit(self, image: Image, handle: int) -> None:
        """Called directly before a written transcript gets its name. An error raised here prevents that."""

    def _remember(self, members: dict[str, Any], document: bytes | None = None) -> None:
        """Write the metadata, with a mark after everything stored; ``document`` is the encoded document, if there is one."""
        self.log.sync()
        self.state = State.CHANGING
        self._write_document(members, document)
        self.state = State.READY

    def _write_document(self, members: dict[str, Any], document: bytes | None = None) -> None:
        mark = Mark(self.log.header.generation, self.log.synced)
        self.folder.replace_file(METADATA, [self.document(members, mark) if document is None else document])
        self.members, self.mark = members, mark

    def renew_mark(self) -> None:
        """Note in metadata.json how far the transcript is synced, if that changed.

        Best effort: every message is stored already, so nothing is raised.
        """
        self._mark_due = self.log.end.seq + MARK_EVERY
        if self.mark == Mark(self.log.header.generation, self.log.synced):
            return
        if self.sealing is None and self.log.header.is_sealed:
            return  # without the key no valid mark can be written
        try:
            self._require_the_lock()
            # Where the file is not what memory says, a mark would vouch for bytes that the file may not have.
            if not self.log.is_as_remembered():
                return  # the next call reads it again
            self._write_document({**self.members, "updated_at": self.updated_at})
        except (OSError, ConversationLockedError, CorruptTranscriptError) as error:
            if isinstance(error, SyncFailedError):
                # Best effort ends here: the page cache may hold what the disk refused, so nothing more is written (P6).
                self.state, self._failure = State.POISONED, str(error.strerror)
            what = f"metadata.json could not note how far the transcript is synced ({error})"
            logger.warning("%s: %s; everything acknowledged is stored, and the next load tries again", self.path, what)

    # ---- before a call, and at the end ---------------------------------------------------------------------------

    def begin_read(self) -> None:
        if self.state is not State.READY or not self.log.is_current:
            self.resolve()

    def _ensure_writable(self) -> None:
        """Before a write: as :meth:`_look`, once per call."""
        if not self.was_looked_at or self.state is not State.READY:
            self._look()

    def _look(self) -> None:
        """Make sure that the file is what memory says (L3), no sync failed, no call was interrupted, and the lock is ours.

        For an append the lock is not checked: another writer would have changed the transcript's size.
        """
        if self.state is State.POISONED:
            raise PoisonedError(path=self.path, reason=self._failure)
        try:
            if self.state is State.READY and self.log.is_as_remembered():
                self.was_looked_at = True
                return
            self._require_the_lock()
            # An interrupted change may have renamed a file: the whole folder is read again. An interrupted append
            # concerns the log alone.
            if self.state is not State.READY:
                self._load_locked()
            else:
                self.log.look_again()
        except SyncFailedError as error:
            raise self._poison(error, "sync what was written") from error
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(error, self.path, "read the transcript") from error

    begin_write = _look
    """Before a call that writes."""

    def _require_the_lock(self) -> None:
        if not self.lock.is_held():
            what = "the lock file was removed while this process held it; another process may be writing"
            raise ConversationLockedError(path=self.path, reason=what, hint=Hint.RELOAD)

    def holds(self, generation: int, position: Position) -> bool:
        """True if a generation leads through this position, live or replaced (by another writer, between two calls)."""
        if generation == self.log.header.generation:
            return self.log.holds(position)
        try:
            with self.archived(generation) as log:
                return log.holds(position)
        except GenerationNotFoundError:
            return False

    def resolve(self) -> None:
        """Find out what an interrupted call left. A poisoned writer still shows what was acknowledged."""
        if not self.is_poisoned and (self.state is not State.READY or not self.log.is_current):
            self._ensure_writable()

    def sync_before_copy(self) -> None:
        """Sync what was appended without a sync. A poisoned writer returns what was acknowledged."""
        if self.state is State.READY:
            try:
                self.log.sync()
            except SyncFailedError as error:
                raise self._poison(error, "sync before the copy") from error

    def close(self) -> None:
        """Sync, renew the mark, release everything. After a failed sync only release: nothing more is written."""
        self.was_looked_at = False
        try:
            if self.state in (State.READY, State.CHANGING):
                self._sync_to_close()
        finally:
            self.let_go()

    def _sync_to_close(self) -> None:
        consequence = "Every message was written; whether the last ones are on the disk is unknown"
        with refusals(self.path, "sync the transcript while closing", consequence):
            try:
                self._ensure_writable()
                self.log.sync()
            # A close must release everything. What is wrong is refused by the next load, with its place and a hint.
            except (CorruptTranscriptError, CorruptMetadataError, ConversationLockedError, NotSealedError) as error:
                logger.warning("%s: closed without a sync: %s", self.path, error)
                return
            self.renew_mark()
