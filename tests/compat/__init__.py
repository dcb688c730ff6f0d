"""Conversations and stores of snapshots that were written by each version of the format, kept to be read for ever.

``v1/<name>/`` is a conversation's folder as it was on the disk, ``v1/<name>.json`` what a reader has to see in it;
``v1-stores/`` holds the same of stores of snapshots (version 1 of theirs), whose keys stand in ``stores.KEYS``. They are never rewritten: a
test fails if one changes by a byte. ``python -m tests.compat`` writes those that are missing.
"""
