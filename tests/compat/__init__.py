"""Conversations that were written by each version of the format, kept to be read for ever.

``v1/<name>/`` is a folder as it was on the disk, ``v1/<name>.json`` what a reader has to see in it. They are never rewritten: a
test fails if one changes by a byte. ``python -m tests.compat`` writes those that are missing.
"""
