"""``transcript-store ship``: copy conversations to a backend, and keep the copy up to date."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.arguments import add_json, path, seconds
from transcript_store.cli._shared.health import StatusFile, add_status_file, stopped_by_sigterm
from transcript_store.cli._shared.hints import error_sentence
from transcript_store.cli._shared.names import (
    backend_at,
    existing,
    is_backend_address,
    printable_name,
    taken_apart,
    the_library,
)
from transcript_store.cli._shared.terminal import Misuse, Working, complain, many, one_line, say, say_json, size
from transcript_store.file_names import TRANSCRIPT, absolute_path

if TYPE_CHECKING:
    from transcript_store.backends import LibraryShipper, NotShipped, Shipped, Shipper

DESCRIPTION = """\
Copy a conversation, or all of a library, to a database or a bucket, and report what is still to send. It appends new records to
the copy: transcripts of every generation, byte for byte, and the metadata. If it is interrupted, run it again: it continues, and
sends nothing twice. The folder may have a live writer.

A copy that was continued is skipped, and both heads are printed. A writer of the copy is not displaced, except with --take-over.
The key.json of a sealed conversation is sent only with --with-key: without it a copy cannot be opened, and need not be shredded.
Back up key files elsewhere. `restore` brings copies back.

SIGTERM ends --follow with exit code 0, after it has released its claims.
"""
EPILOG = """\
exit code: 0 if everything was sent, 1 if something was not

examples:
  transcript-store ship chats/today postgresql://keeper@db.example/agents
  transcript-store ship chats s3://bucket/copies --dry-run          what is still to send?
  transcript-store ship chats s3://bucket/copies --follow           new records each second, until Ctrl-C
  transcript-store ship chats s3://bucket/copies --follow --status-file s.prom
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    what = "a conversation (its folder, DIR/ID, DIR/last) or a library (default: that of `chat`)"
    parser.add_argument("source", metavar="LIBRARY", nargs="?", type=path, help=what)
    parser.add_argument("to", metavar="TO", type=path, help="the address of a backend")
    parser.set_defaults(two_words=("source", "to"))
    parser.add_argument("--dry-run", action="store_true", help="report what is still to send, and stop")
    parser.add_argument("--take-over", action="store_true", help="claim the copy even if it has another writer")
    parser.add_argument("--with-key", action="store_true", help="send key.json of sealed conversations too")
    parser.add_argument("-f", "--follow", action="store_true", help="send new records as they come, until Ctrl-C")
    parser.add_argument(
        "--every", metavar="SECONDS", type=seconds, default=1.0, help="how often --follow checks (default: 1)"
    )
    add_status_file(parser)
    add_json(parser, "one JSON object for each conversation")


def run(arguments: Namespace) -> int:
    """Ship there."""
    arguments.without_key = []
    to = (
        arguments.to if is_backend_address(arguments.to) else absolute_path(arguments.to)
    )  # this refuses an incomplete address
    if arguments.source is None:
        arguments.source = the_library(None, on_backends=True)
    if is_backend_address(arguments.source):
        raise Misuse(
            f"`ship` sends to a backend; `transcript-store restore {printable_name(arguments.source)} {printable_name(to)}` restores"
        )
    if not is_backend_address(to):
        what = "such as postgresql://host/database or s3://bucket/prefix; `backup` copies to a folder or a file"
        raise Misuse(f"{to} is not a backend's address, {what}")
    if taken_apart(arguments.to).what is not None:
        raise Misuse(f"{printable_name(arguments.to)}: name the backend alone; conversations keep their ids there")
    backend = backend_at(arguments.to, creates=not arguments.dry_run)
    return _follow(arguments, backend) if arguments.follow else _send(arguments, backend)


def _tell_ends(arguments: Namespace) -> None:
    """Print source and target first: one database has several libraries."""
    complain(f"from {one_line(printable_name(arguments.source))} to {one_line(printable_name(arguments.to))}")


def _shipper(arguments: Namespace, backend: Any) -> Shipper | LibraryShipper:
    from transcript_store.backends import LibraryShipper, Shipper

    directory = absolute_path(arguments.source)
    is_library = os.path.isdir(directory) and not os.path.lexists(os.path.join(directory, TRANSCRIPT))
    options = {"take_over": arguments.take_over, "with_key": arguments.with_key}
    if is_library:
        return LibraryShipper(directory, backend, **options)
    found = existing(arguments.source)
    if is_backend_address(found):  # of the library of chat
        raise Misuse(f"{printable_name(found)}: it is on a backend already; name it, and a new folder")
    return Shipper(found, backend, **options)


def _reports(shipper: Any, arguments: Namespace) -> Iterator[Shipped | NotShipped]:
    """The report of each; for a single conversation an error is raised. With --follow, an unchanged one is not sent."""
    if arguments.follow and not getattr(shipper, "has_news", lambda: True)():
        return iter(())
    reports = shipper.lag() if arguments.dry_run else shipper.send()
    return reports if isinstance(reports, Iterator) else iter([reports])


def _send(arguments: Namespace, backend: Any) -> int:
    from transcript_store.backends import NotShipped

    failing = records = behind = 0
    status = _status_file(arguments)
    with status.failing_if_it_raises(), _shipper(arguments, backend) as shipper:
        _tell_ends(arguments)
        if arguments.dry_run and not getattr(backend, "has_tables", lambda: True)():
            say("the database has no tables yet: without --dry-run they are created, and everything is sent")
            return 0
        with Working("looking" if arguments.dry_run else "shipping") as working:
            for report in _reports(shipper, arguments):
                with working.paused():
                    failing += _tell(report, arguments)
                if not isinstance(report, NotShipped):
                    records, behind = records + report.sent_records, behind + report.left_records
    status.end_round(failing=failing, behind=behind, records=records)
    _tell_of_keys(arguments)
    return 1 if failing else 0


def _status_file(arguments: Namespace) -> StatusFile:
    return StatusFile(
        arguments.status_file, "ship", source=printable_name(arguments.source), target=printable_name(arguments.to)
    )


def _follow(arguments: Namespace, backend: Any) -> int:
    """Send new records repeatedly. Retry a backend that does not answer; report a problem once."""
    if arguments.dry_run:
        raise Misuse("--follow and --dry-run exclude each other")
    status = _status_file(arguments)
    with stopped_by_sigterm(), _shipper(arguments, backend) as shipper:
        _tell_ends(arguments)
        _keep_up(arguments, shipper, status)
    return 0


def _keep_up(arguments: Namespace, shipper: Any, status: StatusFile) -> None:
    from transcript_store.backends import BackendError, NotShipped

    known: dict[str, str] = {}
    while True:
        records = behind = 0
        try:
            for report in _reports(shipper, arguments):
                if isinstance(report, NotShipped):
                    if known.get(report.directory) != str(report.error):
                        known[report.directory] = str(report.error)
                        _tell(report, arguments)
                    continue
                if report.sent_records or known.pop(report.directory, ""):
                    _tell(report, arguments)
                records, behind = records + report.sent_records, behind + report.left_records
            known.pop("", None)
            _tell_of_keys(arguments)
        except BackendError as error:
            if "" not in known:
                complain(error_sentence(error, "ship"))
            known[""] = str(error)
        status.end_round(failing=len(known), behind=behind, records=records)
        time.sleep(arguments.every)


def _tell(report: Shipped | NotShipped, arguments: Namespace) -> int:
    """Print the report of one conversation; return its exit code."""
    from transcript_store.backends import NotShipped

    if isinstance(report, NotShipped):
        if arguments.json:
            say_json({"directory": report.directory, "error": error_sentence(report.error, "ship")})
        complain(error_sentence(report.error, "ship"))
        return 1
    if arguments.json:
        say_json(asdict(report))
    else:
        say(f"{one_line(report.id)}  {_of_shipped(report, arguments)}", now=True)
    if report.key_is_missing and not arguments.dry_run:
        arguments.without_key.append(report.id)
    return 0


def _tell_of_keys(arguments: Namespace) -> None:
    """One line for all sealed conversations whose wrapped key was not sent."""
    ids = arguments.without_key
    if not ids:
        return
    which = (
        f"{ids[0]} is sealed, and its key.json is"
        if len(ids) == 1
        else f"{len(ids):,} conversations are sealed, and their key.json are"
    )
    complain(
        f"{which} not on the backend: without them the copy cannot be opened. Send them with --with-key, or back them up elsewhere"
    )
    ids.clear()


def _of_shipped(report: Shipped, arguments: Namespace) -> str:
    left = f"{many(report.left_records, 'record')} ({size(report.left_bytes)}) still to send"
    if arguments.dry_run:
        return left if report.left_records else "up to date"
    sent = f"{many(report.sent_records, 'record')} ({size(report.sent_bytes)}) sent"
    if not report.sent_records:
        sent = "nothing new"
    return f"{sent}, {left}" if report.left_records else sent
