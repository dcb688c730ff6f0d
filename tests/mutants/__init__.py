"""Mutants: the store with one small mistake in it, and the question whether a test notices.

``operators`` makes them of a source, ``running`` lets the tests at them, ``reach`` tells which tests come near which,
``judged`` lists those that nobody can notice, with the reason. ``python -m tests.mutants`` prints the table;
docs/durability.md says how to read it.
"""
