"""Crash tests on the simulated disk: the crash matrix of docs/durability.md, enumerated.

``model``: what a user sees, and what may be seen after a crash. ``operations``: what is done, on which conversations.
``enumeration``: where it is stopped, and how. ``seeded_bugs``: stores that are broken on purpose, one way at a time.
To prove a new operation add it to ``operations.CASES``; a new fault, to ``enumeration.FAULTS``; a new bug, to
``seeded_bugs.BUGS``.
"""
