"""One append-only file: its lines, which of them are whole, what is damaged, and how it is written."""
