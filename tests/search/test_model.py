"""Whatever happens to a library, the index finds what a naive scan finds: no message more and none less (F9)."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.search.libraries import appended, begun, contains, found, has_word, naive, replaced
from transcript_store import ConversationLibrary, repair
from transcript_store.search import SearchIndex, _catalogue, _indexing

WORDS = ("socket", "sockets", "pipe", "timeout", "café", "naïve", "東京", "東京大学", "京", "한국어", "ソケット")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=0, max_size=6).map(" ".join)


class Library(RuleBasedStateMachine):
    """A library to which everything happens that may happen to one, and an index that is opened and closed meanwhile."""

    @initialize(settled=st.booleans(), one_by_one=st.booleans())
    def begin(self, settled, one_by_one):
        self.home = Path(tempfile.mkdtemp())
        self.was, self.many = _catalogue.SETTLED_NS, _indexing._MANY
        _indexing._MANY = self.many if one_by_one else 0  # 0: all words are taken from FTS5
        _catalogue.SETTLED_NS = self.was if settled else 0  # 0: what looks the same is never read again
        self.library = ConversationLibrary(self.home / "library")
        self.index = self.opened()
        self.ids: list[str] = []
        self.backups: dict[str, Path] = {}

    def opened(self):
        return SearchIndex(self.library, cache=self.home / "cache")

    def teardown(self):
        if hasattr(self, "home"):
            _catalogue.SETTLED_NS, _indexing._MANY = self.was, self.many
            self.index.close()
            shutil.rmtree(self.home)

    def one(self, data) -> str | None:
        return data.draw(st.sampled_from(self.ids)) if self.ids else None

    @rule(texts=st.lists(TEXTS, max_size=4))
    def create(self, texts):
        self.ids.append(begun(self.library, *texts, features=["retract"]))

    @rule(data=st.data(), texts=st.lists(TEXTS, min_size=1, max_size=3))
    def append(self, data, texts):
        if own_id := self.one(data):
            appended(self.library, own_id, *texts)

    @rule(data=st.data(), texts=st.lists(TEXTS, max_size=3))
    def replace(self, data, texts):
        if own_id := self.one(data):
            replaced(self.library, own_id, *texts)

    @rule(data=st.data(), count=st.integers(1, 3))
    def take_back(self, data, count):
        if own_id := self.one(data):
            with self.library.open(own_id, durability="process-crash") as conversation:
                if there := len(conversation.get_messages(last=count)):
                    conversation.retract(there)

    @rule(data=st.data())
    def delete(self, data):
        if own_id := self.one(data):
            self.library.delete(own_id)
            self.ids.remove(own_id)
            self.backups.pop(own_id, None)

    @rule(data=st.data(), share=st.floats(0, 1))
    def fork(self, data, share):
        if own_id := self.one(data):
            with self.library.open(own_id, read_only=True) as conversation:
                through = int(share * conversation.record_count)
            self.ids.append(self.library.fork(own_id, through_seq=through))

    @rule(data=st.data())
    def back_up(self, data):
        if own_id := self.one(data):
            self.backups[own_id] = Path(
                shutil.copytree(self.home / "library" / own_id, tempfile.mkdtemp(dir=self.home) + "/copy")
            )

    @rule(data=st.data())
    def restore(self, data):
        if self.backups:
            own_id = data.draw(st.sampled_from(sorted(self.backups)))
            shutil.rmtree(self.home / "library" / own_id)
            shutil.copytree(self.backups[own_id], self.home / "library" / own_id)  # with the times that it had

    @rule(data=st.data(), text=TEXTS)
    def damage_and_repair(self, data, text):
        if own_id := self.one(data):
            path = self.home / "library" / own_id / "transcript.jsonl"
            lines = path.read_bytes().splitlines(keepends=True)
            if len(lines) > 1:
                lines[data.draw(st.integers(1, len(lines) - 1))] = b"damaged " + text.encode() + b"\n"
                path.write_bytes(b"".join(lines))
                repair(path.parent, dry_run=False, mode="salvage")

    @rule()
    def reopen(self):
        self.index.close()
        self.index = self.opened()

    @rule(word=st.sampled_from(WORDS))
    def ask_in_between(self, word):
        """An index that sees some states and not others."""
        self.index.search(word)

    @invariant()
    def agrees(self):
        if not hasattr(self, "index") or not self.ids:
            return
        directory = self.home / "library"
        for word in ("socket", "pipe"):
            assert found(self.index, word) == naive(directory, has_word(word)), word
        assert found(self.index, "cafe") == naive(directory, lambda text: "café" in text)
        assert found(self.index, "*ocke*") == naive(directory, lambda text: "ocke" in text)
        assert found(self.index, "*ocket_pip*") == naive(directory, lambda text: "ocket pip" in text)
        assert found(self.index, "pipe -*ckets_ti*") == naive(
            directory, lambda text: has_word("pipe")(text) and "ckets ti" not in text
        )
        assert found(self.index, "sock*") == naive(directory, lambda text: bool(re.search(r"\bsock", text)))
        assert found(self.index, "pipe -socket") == naive(
            directory, lambda text: has_word("pipe")(text) and not has_word("socket")(text)
        )
        assert found(self.index, '"pipe timeout"') == naive(directory, lambda text: "pipe timeout" in text)
        assert found(self.index, "pipe OR timeout") == naive(
            directory, lambda text: has_word("pipe")(text) or has_word("timeout")(text)
        )
        for term in ("京", "東京", "京大", "東京大学", "한국", "국어", "ケット", "ソケット"):
            assert found(self.index, term) == naive(directory, contains(term)), term
        listed = {summary.id: summary.record_count for summary in self.index.list(limit=1000)}
        assert listed == {summary.id: summary.record_count for summary in self.library.list()}


def run(examples: int, steps: int) -> None:
    few = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Library, settings=few)


@pytest.mark.usefixtures("quiet")
def test_f9_the_index_agrees_with_a_naive_scan():
    run(4, 10)


@pytest.mark.long
@pytest.mark.usefixtures("quiet")
def test_f9_the_index_agrees_with_a_naive_scan_of_many_libraries():
    run(60, 25)
