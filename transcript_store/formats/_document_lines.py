"""One JSON document as lines: everything before its messages is the first line, and each message is a line.

The document is an object with its messages in a member, or an array of messages. The lines joined are its bytes.
"""

from __future__ import annotations

from transcript_store.formats._document import (
    LONGEST_BYTES,
    TOO_DEEP,
    Span,
    is_too_deep,
    parse_object,
    pieces_within,
    read_all,
    read_object,
)
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, objects
from transcript_store.formats._plan import ImportFinding, Source

_MARK = b"\xef\xbb\xbf"
_TWICE = "the document has its messages twice: the last of the two were read, as JSON's readers do; its bytes are kept"


def objects_on(said: object) -> list[Json]:
    """The objects of an array, or of its JSON text; none if it cannot be read."""
    if isinstance(said, (str, bytes)):
        raw = said.encode(errors="surrogatepass") if isinstance(said, str) else said
        said = (parse_object(b'{"":%s}' % raw) or {}).get("")
    return objects(said)


def lines_of_document(source: Source, member: str = "messages") -> tuple[list[SourceLine], list[ImportFinding]]:
    """The document's lines and its faults: first a line with everything but the messages, then one for each message.

    A document that cannot be read is one line without a value; one that is too long is a line without bytes. One that has the
    member twice is one line, whose value includes the messages.
    """
    if source.size > LONGEST_BYTES:
        message = f"a document longer than {LONGEST_BYTES:,} bytes was left out"
        return [SourceLine(1, 0, b"", None)], [ImportFinding("too-long", message, 1, 0)]
    raw = read_all(source, Span(0, source.size))
    text = raw.removeprefix(_MARK)
    around = b'{"%s":' % member.encode() if text.lstrip()[:1] == b"[" else b""
    text = around + text + b"}" if around else text
    value, odd = read_object(text)
    if value is None:
        finding = (
            ImportFinding("too-deep", f"the document is {TOO_DEEP}", 1, 0)
            if is_too_deep(raw)
            else ImportFinding("not-json", "the document is not a JSON object, or is cut off", 1, 0)
        )
        return [SourceLine(1, 0, raw, None)], [finding]
    findings = [ImportFinding(kind, message, 1, 0) for kind, message in odd]
    messages = objects(value.get(member))
    about = {name: found for name, found in value.items() if name != member}
    pieces = pieces_within(text, member)
    # The pieces come from the text and the messages from the parser, which drops the first of two equal members.
    if len(pieces) != 1 + len(messages):
        return [SourceLine(1, 0, raw, value)], [*findings, ImportFinding("twice", _TWICE, 1, 0)]
    if around:  # what was put around an array is taken off again
        pieces[0] = (0, pieces[0][1].removeprefix(around))
        pieces[-1] = (pieces[-1][0], pieces[-1][1].removesuffix(b"}"))
    pieces[0] = (0, raw[: len(raw) - len(raw.removeprefix(_MARK))] + pieces[0][1])
    lines, at = [], 0
    for number, ((_, piece), found) in enumerate(zip(pieces, [about, *messages], strict=True), 1):
        lines.append(SourceLine(number, at, piece, found))
        at += len(piece)
    return lines, findings
