"""``python -m transcript_store`` is the command ``transcript-store``; both start here.

The command is imported in ``main()``: that takes most of a short call's time, and Ctrl-C in it ends the process as it
does later on.
"""

import os
import signal


def main() -> int:
    """Run the typed command; returns its exit code, as ``transcript_store.cli.main`` does."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # otherwise the parent process chose to ignore it
        # Nothing was started, so there is nothing to clean up. A module that is being imported could swallow an
        # exception.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        from transcript_store.cli import main as command

        signal.signal(signal.SIGINT, usual)
        return command()
    except KeyboardInterrupt:  # between the two lines, or before the command is ready for it
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
