"""How is a conversation written as Markdown? With the content of a page, without its layout.

Messages stay Markdown where that cannot affect the document; calls and results are folded,
in fences that they cannot close. So no page that shows the document runs a script or fetches an image, and no text can
pass for a heading of ours.

A parser that knows raw HTML reads a message's text first. Raw HTML, images, links with a scheme other than http, https and mailto, link
definitions and blocks that are open at the end must not be there: they are escaped. If some are left, or the extra ``view`` is not
installed, the text goes into a fence. Its headings are moved below those of the document, so none passes for one of them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from transcript_store.display import many, safe
from transcript_store.formats import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.messages import document_in, parts_of, role_of, typed_of
from transcript_store.view._contents import (
    PageContents,
    PageItem,
    ShownMessage,
    answers_in,
    said_of_hidden,
    shown_messages,
    title_of,
)
from transcript_store.view._html import readable_json
from transcript_store.view.calls import shell_command_of, summary_of_call

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LONGEST = 100_000
"""In characters. A longer text is put into a fence: some Markdown takes more than linear time."""
_ROUNDS = 4
_BELOW = 4
"""The level of a text's own first heading."""
_CONTAINERS = r"(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t])))*[ \t]*"
_HEADING = re.compile(rf"^({_CONTAINERS})(#{{1,6}})(?=[ \t]|$)", re.MULTILINE)
_UNDERLINE = re.compile(rf"^({_CONTAINERS})(=+|-+)(?=[ \t]*$)", re.MULTILINE)
_DEFINITION = re.compile(rf"^({_CONTAINERS})\[(?=[^\]\n]*\]:)", re.MULTILINE)
_ALLOWED = ("http://", "https://", "mailto:", "#")
_LINE_ENDS = re.compile("\r\n?")
_SENTINEL = "end of what was said"


def prose(said: str) -> str | None:
    """The text as Markdown that is safe within a document; None if it needs a fence."""
    parser = _parser()
    if parser is None or len(said) > _LONGEST:
        return None
    text = _DEFINITION.sub(r"\1\\[", _LINE_ENDS.sub("\n", said).strip("\n"))
    for _ in range(_ROUNDS):
        env: dict[str, Any] = {}
        tokens = parser.parse(f"{text}\n\n{_SENTINEL}\n", env)
        changed = _without_markup(text, tokens)
        if changed == text:
            return text if _is_closed(tokens) and not env.get("references") and _does_nothing(tokens) else None
        text = changed
    return None


@cache
def _parser() -> MarkdownIt | None:
    try:
        from markdown_it import MarkdownIt
    except ModuleNotFoundError:
        return None
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    # Another program may follow what ours would refuse.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005
    return parser


def _is_closed(tokens: list[Token]) -> bool:
    """True if what follows the text is a paragraph of its own."""
    kinds = [(token.type, token.level, token.content) for token in tokens[-3:]]
    return kinds == [("paragraph_open", 0, ""), ("inline", 1, _SENTINEL), ("paragraph_close", 0, "")]


def _does_nothing(tokens: list[Token]) -> bool:
    """True if no heading is as high as one of the document's, and nothing is left that :func:`_without_markup` should have escaped."""
    if any(token.type == "html_block" for token in tokens):
        return False
    if any(int(token.tag[1:]) < _BELOW for token in tokens if token.type == "heading_open"):
        return False
    return not any(True for token in tokens for child in token.children or () for _ in _refused(child))


def _without_markup(text: str, tokens: list[Token]) -> str:
    """The text with what the parser sees in it, and must not be there, escaped on its lines."""
    lines = text.split("\n")
    for token in tokens:
        first, end = token.map or (0, 0)
        where = range(first, min(end, len(lines)))
        if token.type == "html_block":
            _change(lines, where, "<", "&lt;")
        elif token.type == "heading_open" and int(token.tag[1:]) < _BELOW:
            for at in where:
                lines[at] = _UNDERLINE.sub(r"\1\\\2", _HEADING.sub(_lower, lines[at]))
        elif token.type == "inline":
            # Each pair once: a line of thousands of images would be gone through for each of them.
            for old, new in dict.fromkeys(chain.from_iterable(map(_refused, token.children or ()))):
                _change(lines, where, old, new)
    return "\n".join(lines)


def _lower(found: re.Match[str]) -> str:
    return f"{found[1]}{'#' * min(6, len(found[2]) + _BELOW - 1)}"


def _refused(child: Token) -> Iterator[tuple[str, str]]:
    address: Any = child.attrs.get("href", "")
    if child.type == "html_inline":
        yield child.content.split("\n", 1)[0], child.content.split("\n", 1)[0].replace("<", "&lt;")
    elif child.type == "image":
        yield "![", r"\!["
    elif child.type == "link_open" and not str(address).lower().startswith(_ALLOWED) and not _is_relative(str(address)):
        yield "](", r"\]("
        yield "<", "&lt;"


def _is_relative(address: str) -> bool:
    return re.fullmatch(r"[\w./-]*(#[\w.-]*)?", address) is not None and not address.startswith("//")


def _change(lines: list[str], where: range, old: str, new: str) -> None:
    for at in where:
        lines[at] = re.sub(rf"(?<!\\){re.escape(old)}", lambda _: new, lines[at])


_BACKTICKS = re.compile("`+")
_SPECIAL = re.compile(r"([\\`*_\[\]|<>&~]|(?<=\s)#+$)")
"""Markup within a line."""


def markdown_document(contents: PageContents) -> Iterator[bytes]:
    """The document, in pieces. Events are counted, and left out."""
    return (piece.encode() for piece in _document(contents))


def _document(contents: PageContents) -> Iterator[str]:
    metadata = contents.metadata
    yield f"# {_escaped(title_of(contents))}\n"
    events = sum(_is_event(stretch) for stretch in contents.stretches)
    facts = {
        "id": metadata.id,
        "provider": metadata.provider,
        "model": metadata.model,
        "created": metadata.created_at,
        "generation": str(contents.generation) if contents.generation else None,
        "left out": many(events, "event") if events else None,
        **{name: text for name, text in metadata.labels.items() if name != "title"},
    }
    yield "".join(f"\n- {_escaped(name)}: {_escaped(fact)}" for name, fact in facts.items() if fact) + "\n"
    if contents.damage:
        yield _gap(f"This conversation is damaged. {contents.damage}")
    if metadata.system_prompt:
        yield f"\n## system prompt\n\n{_said(metadata.system_prompt)}"
    if contents.hidden:
        yield _gap(said_of_hidden(contents.hidden))
    for earlier in contents.before:
        if earlier.stretches:
            what = f"compacted or retracted: {many(len(earlier.stretches), 'record')} of generation {earlier.number}"
            yield f"\n## {_escaped(what)}\n"
            yield from _messages(earlier.stretches, metadata.provider, "###")
            yield f"\n## generation {earlier.number + 1}\n"
    yield from _messages(contents.stretches, metadata.provider, "##")


def _how_said(extra: dict[str, Any] | None) -> str:
    """The facts about a message that precede its text."""
    if (extra or {}).get("left_branch") is True:
        return "on an abandoned branch"
    return "written by the program" if typed_of(extra, "said") == "" else ""


def _is_event(stretch: PageItem) -> bool:
    return stretch.record is not None and stretch.record.message is None


def _messages(stretches: Iterable[PageItem], provider: str | None, heading: str) -> Iterator[str]:
    said = shown_messages(stretches, provider)
    answers = answers_in(said)
    answered = frozenset(answers.values())
    for number, each in enumerate(said):
        if each.stretch.damage:
            yield _gap(each.stretch.damage)
        if each.stretch.record is None or each.turn is None:
            continue
        body = "".join(_blocks(number, each, said, answers, answered))
        if body:  # else its results are shown with their calls
            record = each.stretch.record
            at = record.at[:19].replace("T", " ")
            by = f" · {how}" if (how := _how_said(record.extra)) else ""
            yield f"\n{heading} {_escaped(role_of(record.message))} · {at} · #{record.seq}{by}\n{body}"


def _blocks(
    number: int,
    each: ShownMessage,
    said: Sequence[ShownMessage],
    answers: dict[tuple[int, int], tuple[int, int]],
    answered: frozenset[tuple[int, int]],
) -> Iterator[str]:
    assert each.turn is not None
    assert each.stretch.record is not None
    for index, block in enumerate(each.turn.blocks):
        if (number, index) in answered:
            continue
        answer = None
        if place := answers.get((number, index)):
            turn = said[place[0]].turn
            assert turn is not None
            answer = turn.blocks[place[1]]
        if isinstance(block, Call) and (answer is None or isinstance(answer, Result)):
            yield _folded(block, answer)
        else:
            yield from _block(block, each.turn.role)
    if not each.turn.blocks:
        yield from _parts(each.stretch.record.message)


def _block(block: Block, role: str) -> Iterator[str]:
    if isinstance(block, Text) and block.title is not None:
        yield _titled(block.title, block.text)
    elif isinstance(block, Text):
        if block.text.strip():
            yield f"\n{_said(block.text)}"
    elif isinstance(block, Thinking):
        yield _titled("thinking", block.text or "(not shown by the provider)")
    elif isinstance(block, Call):
        yield _folded(block, None)
    elif isinstance(block, Result):
        name = f" {block.name}" if block.name else ""
        yield _titled(f"result{name}{', failed' if block.failed else ''}", block.text)
        for media in block.media:
            yield _media(media)
    elif isinstance(block, Media):
        document = document_in(block.own or {})
        yield _media(block) if document is None else _titled(*document)
    elif isinstance(block, Other) and block.own is not None:
        yield from _parts({"role": role, "content": [block.own]})


def _folded(call: Call, answer: Result | None) -> str:
    """A call and its result, folded below what it is about."""
    state = "no result" if answer is None else "failed" if answer.failed else ""
    about = " · ".join(filter(None, (call.name or "tool", summary_of_call(call.arguments), state)))
    command = shell_command_of(call.arguments)
    given = _fenced(command, "bash") if command else _fenced(readable_json(call.arguments), "json")
    result = "" if answer is None else "".join(_block(answer, ""))
    summary = html.escape(safe(" ".join(about.split())), quote=False)
    return f"\n<details>\n<summary>{summary}</summary>\n\n{given}{result}\n</details>\n"


def _said(text: str) -> str:
    """A text with its own Markdown, if that can do nothing to the document; else in a fence."""
    text = safe(text.replace("\r\n", "\n"))
    said = prose(text)
    return _fenced(text, "markdown") if said is None else f"{said}\n"


def _parts(message: object) -> Iterator[str]:
    for part in parts_of(message):
        yield (_titled(part.title or part.kind, part.text) if part.kind != "text" else f"\n{_said(part.text)}")


def _media(media: Media) -> str:
    where = f"at {media.url[:200]}" if media.url else many(len(media.data or "") * 3 // 4, "byte")
    return f"\n**{_escaped(media.type)}**, {_escaped(where)}: not shown\n"


def _titled(title: str, text: str, kind: str = "") -> str:
    return f"\n**{_escaped(title)}**\n" + (f"\n{_fenced(text, kind)}" if text else "")


def _gap(said: str) -> str:
    return f"\n> {_escaped(said)}\n"


def _fenced(text: str, kind: str) -> str:
    text = safe(text.replace("\r\n", "\n"))
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{kind}\n{text}\n{fence}\n"


def _escaped(text: str) -> str:
    """On one line, and no markup."""
    return _SPECIAL.sub(r"\\\1", safe(" ".join(text.split())))
