"""``python -m transcript_store`` is the command ``transcript-store``."""

from transcript_store.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
