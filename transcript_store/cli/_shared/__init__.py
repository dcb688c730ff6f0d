"""Shared by several commands: arguments, the terminal, keys, and the display of records."""
