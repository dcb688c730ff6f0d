"""``transcript-store serve``: a library in the browser."""

from __future__ import annotations

import webbrowser
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from transcript_store.cli._shared.arguments import path
from transcript_store.cli._shared.health import StatusFile, add_status_file
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import libraries, library_at, printable_name
from transcript_store.cli._shared.terminal import columns, complain, one_line, say
from transcript_store.serving import serve

DESCRIPTION = """\
Show a library in the browser (default: that of `chat`): the list, a search over everything, and each conversation as `view`
shows it, including new messages. It answers only this machine's browser, at an address with a secret token, which is new each
time. The browser gets it from a file that only you can read; a terminal shows it too. Nothing in the library is changed and no
lock is taken. Ctrl-C ends it. With the key, sealed conversations are shown too; nothing of them is written anywhere. LIBRARY may
be a backend's address: nothing is claimed there.

On a machine that you reach by ssh, choose a port and forward it: ssh -L 8000:127.0.0.1:8000 HOST. If the local port differs
(-L 9000:127.0.0.1:8000), give it as --forwarded-port 9000: requests for any other address are refused.
"""
EPILOG = """\
examples:
  transcript-store serve
  transcript-store serve chats
  transcript-store serve postgresql://keeper@db.example/agents
  transcript-store serve chats --no-open     prints the file to open
  transcript-store serve chats --no-open --port 8000
  transcript-store serve chats --port 8000 --forwarded-port 9000
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("library", metavar="LIBRARY", nargs="?", type=path, help="which (default: that of `chat`)")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    parser.add_argument(
        "--port", metavar="N", type=_port, default=0, help="listen at this port of 127.0.0.1 (default: a free one)"
    )
    parser.add_argument(
        "--forwarded-port",
        metavar="M",
        type=_port,
        default=None,
        help="the browser's port of a tunnel; does not open a browser",
    )
    add_keys(parser)
    add_status_file(parser)


def run(arguments: Namespace) -> int:
    """Serve until it is interrupted."""
    keys = command_keys(arguments)
    (directory,) = libraries([arguments.library] if arguments.library else [], on_backends=True)

    def ready(entrance: str) -> None:
        say(one_line(entrance), now=True)
        if arguments.no_open or arguments.forwarded_port:
            return
        if not webbrowser.open(Path(entrance).as_uri()):
            complain("no browser was found: open the file yourself")

    def show_address(address: str) -> None:
        if columns() is not None:  # otherwise it may be a log that others can read
            say(address)

    def failed(error: BaseException) -> None:
        complain(f"the server met an error: {type(error).__name__}: {error}")

    status = StatusFile(arguments.status_file, "serve", source=printable_name(directory))
    serve(
        library_at(directory),
        ready=ready,
        show_address=show_address,
        failed=failed,
        alive=status.end_round,
        port=arguments.port,
        forwarded_port=arguments.forwarded_port,
        **keys.options,
    )
    return 0


def _port(text: str) -> int:
    """The type of an argument that is a port."""
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536):
        raise ArgumentTypeError(f"{text!r} is not a port: use a number up to 65535")
    return int(text)
