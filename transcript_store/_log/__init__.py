"""One append-only file: its lines, the intact and the damaged ones, and how it is written."""
