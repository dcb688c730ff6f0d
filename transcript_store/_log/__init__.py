"""One append-only file: its lines, what is whole of it, what is damaged, and how it is written."""
