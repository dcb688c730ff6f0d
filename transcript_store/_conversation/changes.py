"""What changes a conversation as a whole: its transcript (a generation begins), its metadata, its archive, its seal.

Each change ends in one commit, the rename of a file. ``writer`` has how that is made, the lock, and the appends.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from transcript_store._conversation import archive
from transcript_store._conversation.arguments import ends_of
from transcript_store._conversation.key_changes import opens_folder
from transcript_store._conversation.metadata import GONE, SEALS, require_to_fit
from transcript_store._conversation.sealing import Sealing, with_gone
from transcript_store._conversation.storage import State, Storage
from transcript_store._log import quarantine
from transcript_store._log.image import Image
from transcript_store._log.record import SEALED, Copied, Entry
from transcript_store._os.names import KEY, METADATA
from transcript_store._os.refusals import refusals
from transcript_store._sealing.key_file import encode_key_file, read_key_file_of
from transcript_store._sealing.providers import Keyring
from transcript_store.words import many

INTACT = "What was there before is in place and intact"


class Changes(Storage):
    """The changes of a conversation; a writer is what makes them."""

    @abstractmethod
    def _ensure_writable(self) -> None:
        """Before a change: the lock is ours, and the file is what memory says."""

    @abstractmethod
    def _changing(self, doing: str, consequence: str = INTACT) -> AbstractContextManager[None]:
        """A change that ends in a commit; an error says which (``doing``), and what holds if it was refused before that."""

    @abstractmethod
    def _put_in_place(self, image: Image, members: dict[str, Any], sealing: Sealing | None) -> None:
        """Write a new transcript and give it its name."""

    @abstractmethod
    def _remember(self, members: dict[str, Any]) -> None:
        """Write the metadata, with a mark of everything that is stored."""

    @abstractmethod
    def renew_mark(self) -> None:
        """Note in metadata.json how far the transcript is synced."""

    @abstractmethod
    def _require_seals(self, count: int) -> None:
        """Raise if the data key may not seal so many texts more."""

    @abstractmethod
    def _seals(self) -> int:
        """How many texts the data key has sealed."""

    @abstractmethod
    def _now(self) -> str:
        """The time of a change, which is never before the last one."""

    def replace(self, entries: Sequence[Entry], members: dict[str, Any], features: Sequence[str] = ()) -> None:
        """Start the next generation with these records and this metadata: one commit, the rename of its transcript.

        It has the features of the live one, and these.
        """
        self._ensure_writable()
        self._begin_generation(entries, members, features)

    def keep(
        self,
        seqs: Collection[int],
        changed: Mapping[int, Entry],
        members: dict[str, Any],
        features: Sequence[str] = (),
    ) -> None:
        """The same with those records of the live generation that have these numbers, copied as they are, or with other contents."""
        self._ensure_writable()
        count = self.log.end.seq
        if not_there := [seq for seq in ends_of(seqs) if not 1 <= seq <= count]:
            raise ValueError(f"there is no record {min(not_there)}: the transcript has {many(count, 'record')}")
        for _ in self.log.copies_of(changed, changed):
            pass  # what cannot be changed is refused before anything is written
        self._begin_generation(self.log.copies_of(seqs, changed), members, features, len(seqs))

    def _begin_generation(
        self,
        entries: Iterable[Entry | Copied],
        members: dict[str, Any],
        features: Sequence[str],
        count: int | None = None,
    ) -> None:
        count = len(entries) if isinstance(entries, Sequence) else count
        self._require_seals((count or 0) + 1)
        self._begin_sealed_by(self.sealing, entries, members, {*self.log.header.features, *features}, count)

    def _begin_sealed_by(
        self,
        sealing: Sealing | None,
        entries: Iterable[Entry | Copied],
        members: dict[str, Any],
        features: Iterable[str],
        count: int | None,
    ) -> None:
        self.log.complete()  # only what was verified goes into the archive
        live, end = self.log.header.generation, self.log.end
        members = {**members, "generation": live + 1, "updated_at": self._now()}
        if sealing is not None:
            members[SEALS] = self._seals() + 1
        replaces = {"generation": live, "records": end.seq, "head": end.head.decode()}
        image = self.image_of(members, entries, sorted(features), sealing, count, replaces=replaces)
        with self._changing("replace the transcript"):
            self.log.sync()
            self.state = State.CHANGING
            if sealing is not None and sealing is not self.sealing:
                self.folder.replace_file(KEY, [sealing.key_file])
            archive.keep(self.folder, self.log)
            self._put_in_place(image, members, sealing)
            self.state = State.READY
        self.renew_mark()

    def go_on_with(self, transcripts: Iterable[Image], document: bytes, key_file: bytes | None) -> None:
        """Take in what this conversation became elsewhere: its transcripts from the live generation on, and then its metadata.json.

        Each transcript is a commit, as a replace is; of the live generation it begins with what stands there. ``key_file`` is put beside
        them if the folder has no key. On return, and if it raises, the caller must load anew: in memory the metadata is what the header
        says.
        """
        self._ensure_writable()
        with self._changing("bring the folder up to date", "It is in a state that the conversation had; call it again"):
            self.state = State.CHANGING
            if key_file is not None and self.folder.status(KEY) is None:
                self.folder.replace_file(KEY, [key_file])  # in front of what is sealed with it
            for image in transcripts:
                if image.header.generation > self.log.header.generation:
                    archive.keep(self.folder, self.log)
                self._put_in_place(image, image.header.metadata, None)
            self.folder.replace_file(METADATA, [document])
            self.state = State.READY

    def image_of(
        self,
        members: dict[str, Any],
        entries: Iterable[Entry | Copied],
        features: Iterable[str],
        sealing: Sealing | None,
        count: int | None = None,
        **more: Any,
    ) -> Image:
        """The transcript of a generation that begins, sealed if there is a data key; raises if its metadata is too long."""
        required = [feature for feature in features if feature != SEALED]
        if sealing is None:
            require_to_fit(members)
            return self.log.image(members, entries, required, **more)
        require_to_fit(members, sealing.document(members, None))
        more["begins_with"] = len(entries) if isinstance(entries, Sequence) else count
        sealer = sealing.sealer(members["generation"])
        stored = sealing.stored(members)
        return self.log.image(stored, entries, [*required, SEALED], sealer=sealer, check=sealing.checked, **more)

    # ---- seal and unseal -----------------------------------------------------------------------------------------

    def seal(self, keys: Keyring, *, keep_plain: bool) -> None:
        """Begin a sealed generation with the same records, if the live one is plain; then remove what is plain, unless it is kept.

        Called again after a crash it goes on.
        """
        self._ensure_writable()
        if not self.log.header.is_sealed:
            with refusals(self.path, "seal the conversation", "It is as it was"):
                sealing = self.sealing_to_begin_with(keys, self.log.header.conversation)
                live = self.log.header.generation
                members = with_gone(self.members, live, {*archive.numbers(self.folder), live})
            count = self.log.end.seq
            self._begin_sealed_by(sealing, self.log.copies(count), members, self.log.header.features, count)
        if not keep_plain:
            with refusals(self.path, "remove what is plain", "It is sealed, and some of what was plain is there"):
                plain = archive.plain_numbers(self.folder)
            for number in plain:
                self.delete_generation(number)
            self.purge_quarantine()

    def sealing_to_begin_with(self, keys: Keyring, conversation: str) -> Sealing:
        """For a seal: the data key that the folder has, since earlier generations may be sealed with it, or a fresh one.

        Under the lock it is the one that was met before, unless another key stands there by now.
        """
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
        """Begin a plain generation with the same records. Earlier ones stay sealed, and their key stays beside them."""
        self._ensure_writable()
        if self.log.header.is_sealed:
            self._require_seals(0)
            members = {name: value for name, value in self.members.items() if name not in (SEALS, GONE)}
            count = self.log.end.seq
            self._begin_sealed_by(None, self.log.copies(count), members, self.log.header.features, count)

    def accept(self) -> None:
        """Put the key's mark on what a repair without the key left, so that it counts from now on."""
        live = self.log.header.generation
        with self._changing("accept the repair"):
            members = with_gone(self.members, live, {*archive.numbers(self.folder)})
            self._remember({**members, SEALS: self._seals()})
        self.was_repaired = False

    def write_metadata(self, members: dict[str, Any]) -> None:
        """Replace the metadata document, with a mark of everything that is stored."""
        self._ensure_writable()
        self._require_seals(1)
        members = {**members, "updated_at": self._now()}
        if self.sealing is None:
            require_to_fit(members)
        else:
            members[SEALS] = int(members.get(SEALS) or 0) + 1
            require_to_fit(members, self.document(members, None))
        with self._changing("write the metadata"):
            self._remember(members)

    def delete_generation(self, number: int) -> None:
        """Remove an earlier generation from the archive, durably."""
        self._ensure_writable()
        self.log.sealer_to_write()  # without the key nobody can state that it is gone
        with self._changing("delete an earlier generation"):
            # What it says of the generation before it goes into the metadata first: a crash in between must not lose it.
            members = archive.without(self.folder, self.members, number)
            if self.sealing is not None and number < self.log.header.generation:
                there = {*archive.numbers(self.folder)} - {number}
                members = with_gone(members, self.log.header.generation, there)
            if members != self.members:
                self._remember(members)
            archive.remove(self.folder, self.log, number)

    def purge_quarantine(self) -> int:
        """Remove everything in quarantine/, durably; returns how many pieces of damaged files were in it."""
        self._ensure_writable()
        with self._changing("purge the quarantine"):
            return quarantine.purge(self.folder)
