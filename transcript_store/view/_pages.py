"""The public functions of ``view``: a conversation or a library is read, and written as pages or as Markdown."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol

from transcript_store.conversation import ConversationStore
from transcript_store.display import many
from transcript_store.errors import MissingExtraError, TranscriptStoreError
from transcript_store.file_names import absolute_path
from transcript_store.naming import file_name_of
from transcript_store.new_files import require_binary
from transcript_store.view._as_markdown import markdown_document
from transcript_store.view._contents import PageContents, contents_of, contents_of_store, prompts_of, title_of
from transcript_store.view._files import MARK, PageError, replace_page

if TYPE_CHECKING:
    from transcript_store.keys import KeyProvider
    from transcript_store.redaction import SecretRedactor

__all__ = [
    "PageError",
    "Rendered",
    "Stream",
    "WrittenPage",
    "WrittenSite",
    "render_conversation",
    "render_page",
    "write_page",
    "write_site",
]

_MOST_PROMPTS = 40
"""Of a conversation, in the index of a site."""


class Stream(Protocol):
    """Takes bytes: a file that is open to write, ``sys.stdout.buffer``."""

    def writelines(self, pieces: Iterable[bytes], /) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A conversation that was read, to be written."""

    pieces: Iterator[bytes]
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of each kind were taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPage:
    """A page that was written."""

    path: str
    """Absolute; empty if a stream was written to."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of each kind were taken out."""


def render_page(
    directory: str | os.PathLike[str],
    *,
    generation: int | None = None,
    plain: bool = False,
    redact: SecretRedactor | None = None,
    encryption_key: bytes | KeyProvider | None = None,
    retired_keys: Sequence[bytes | KeyProvider] = (),
) -> Iterator[bytes]:
    """The page of a conversation, in pieces. It is read only, no lock is taken, and a damaged one is shown as far as it can be read.

    Args:
        directory: the conversation's folder.
        generation: an earlier generation; None for the live one.
        plain: put every message into the page itself, for readers without scripts. Else those have the first 200.
        redact: takes secrets out of what is shown. The conversation stays as it is.
        encryption_key: the key of a sealed conversation, as :class:`ConversationStore` takes it. A sealed one that is damaged is not shown.
        retired_keys: earlier keys.

    Raises:
        MissingExtraError: the extra ``view`` is not installed.
        ConversationNotFoundError: nothing is there; check the path.
        GenerationNotFoundError: there is no such generation.
        TranscriptStoreError: as :func:`transcript_store.salvage`.
    """
    return _render(directory, generation, plain, redact, _given(encryption_key, retired_keys))[1]


def render_conversation(
    conversation: ConversationStore,
    *,
    to: Literal["html", "markdown"],
    generation: int | None = None,
    through_seq: int | None = None,
    redact: SecretRedactor | None = None,
    branches: bool = False,
) -> Rendered:
    """A loaded conversation as a page or as Markdown, up to a record. All of it has been read on return.

    Markdown has what the page has, except events, which it counts: whatever was said stands in fences that it cannot close.

    Args:
        conversation: a store that is loaded. It stays as it is.
        to: ``html`` or ``markdown``.
        generation: an earlier generation; None for the live one.
        through_seq: the number of the last record; None for all.
        redact: takes secrets out of what is shown.
        branches: whether messages on branches that the conversation left stand among the others. A page has them folded in any case.

    Raises:
        MissingExtraError: the extra ``view`` is not installed, which ``html`` needs.
        TranscriptStoreError: as :meth:`ConversationStore.get_records`.
    """
    contents = contents_of_store(
        conversation,
        generation=generation,
        through_seq=through_seq,
        redact=redact,
        with_usage=to == "html",
        branches=branches,
    )
    pieces = markdown_document(contents) if to == "markdown" else _as_page(contents, plain=False)
    return Rendered(pieces=pieces, redacted=contents.redacted)


def write_page(
    directory: str | os.PathLike[str] | ConversationStore,
    output: str | os.PathLike[str] | Stream,
    *,
    generation: int | None = None,
    plain: bool = False,
    redact: SecretRedactor | None = None,
    encryption_key: bytes | KeyProvider | None = None,
    retired_keys: Sequence[bytes | KeyProvider] = (),
) -> WrittenPage:
    """Write the page of a conversation into a file, or to a binary stream.

    Instead of a folder it takes a store that is loaded, with its keys: so it writes the page of a conversation on a backend.

    The file is readable by its owner alone, and complete before it has its name. A page of this function is replaced. Missing
    folders are made. The page of a sealed conversation is plain, like every other one.

    Raises:
        TypeError: ``output`` is a stream of text, or ``redact`` no :class:`SecretRedactor`; nothing was written.
        PageError: something else stands there, or the system refuses; nothing was written.
        TranscriptStoreError: as :func:`render_page`, which explains the arguments.
    """
    require_binary(output)
    contents, pieces = _render(directory, generation, plain, redact, _given(encryption_key, retired_keys))
    if not isinstance(output, str | os.PathLike):
        output.writelines(pieces)
        return WrittenPage(path="", redacted=contents.redacted)
    path = replace_page(absolute_path(output), pieces)
    return WrittenPage(path=path, redacted=contents.redacted)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSite:
    """The pages of a library that were written."""

    path: str
    """Of the index, absolute."""
    pages: int
    failed: tuple[TranscriptStoreError, ...] = ()
    """Why conversations have no page, each with its ``path``."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of each kind were taken out."""


def write_site(
    library: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    plain: bool = False,
    redact: SecretRedactor | None = None,
    encryption_key: bytes | KeyProvider | None = None,
    retired_keys: Sequence[bytes | KeyProvider] = (),
) -> WrittenSite:
    """Write a page for each conversation of a library into a folder, and ``index.html``, which lists them and searches in their prompts.

    A page is called by the conversation's name and its last day. Pages of earlier calls are replaced; those of conversations that are
    gone, or have another name now, stay. Sealed conversations have a page if their key is given, and it is plain. What cannot be shown
    is left out, and reported in ``failed``.

    Raises:
        MissingExtraError: the extra ``view`` is not installed.
        PageError: something else stands in the folder under the name of a page, or the system refuses.
        ConversationNotFoundError: there is no such library.
        StorageError: the library cannot be read.
    """
    from transcript_store.library import list_conversations  # a page of one conversation needs neither
    from transcript_store.view._page import SitePage, index_page

    keys, where = _given(encryption_key, retired_keys), absolute_path(folder)
    pages: list[SitePage] = []
    failed: list[TranscriptStoreError] = []
    counts: Counter[str] = Counter()
    for summary in list_conversations(library):
        try:
            of_this = keys if summary.sealed else {}
            contents, pieces = _render(summary.directory, None, plain, redact, of_this)
        except MissingExtraError:
            raise
        except TranscriptStoreError as error:
            failed.append(error)
            continue
        name = title_of(contents)
        taken = {page.file for page in pages}
        file = f"{file_name_of(name, summary.updated_at)}.html"
        if file in taken:
            file = f"{file.removesuffix('.html')}-{os.path.basename(summary.directory)[:8]}.html"
        if file in taken:
            file = f"{file.removesuffix('.html')}-{len(pages)}.html"
        replace_page(os.path.join(where, file), pieces)
        counts.update(contents.redacted)
        labels = contents.metadata.labels
        project = os.path.basename(labels.get("cwd", "").rstrip("/"))
        length = many(
            sum(one.record is not None and one.record.message is not None for one in contents.stretches), "message"
        )
        facts = (project, labels.get("source", ""), contents.metadata.model or contents.metadata.provider or "", length)
        prompts = " ".join(islice(prompts_of(contents), _MOST_PROMPTS))
        pages.append(SitePage(file, name, summary.updated_at or "", facts, prompts))
    title = os.path.basename(absolute_path(library)) or "Conversations"
    path = replace_page(os.path.join(where, "index.html"), (MARK, *index_page(title, pages)))
    return WrittenSite(path=path, pages=len(pages), failed=tuple(failed), redacted=dict(counts))


def _render(
    directory: str | os.PathLike[str] | ConversationStore,
    generation: int | None,
    plain: bool,
    redact: SecretRedactor | None,
    keys: Mapping[str, Any],
) -> tuple[PageContents, Iterator[bytes]]:
    if isinstance(directory, ConversationStore):
        contents = contents_of_store(directory, generation=generation, redact=redact, with_usage=True)
    else:
        contents = contents_of(directory, generation=generation, redact=redact, keys=keys)
    return contents, _as_page(contents, plain=plain)


def _given(key: bytes | KeyProvider | None, retired: Sequence[bytes | KeyProvider]) -> dict[str, Any]:
    return {} if key is None else {"encryption_key": key, "retired_keys": retired}


def _as_page(contents: PageContents, *, plain: bool) -> Iterator[bytes]:
    try:
        from transcript_store.view._page import page
    except ModuleNotFoundError as error:
        raise MissingExtraError(feature="a page", extra="view") from error
    return page(contents, plain=plain)
