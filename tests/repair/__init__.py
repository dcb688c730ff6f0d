"""Repairs: what they keep, and that everything else is still in quarantine.

First a table of what really happens to files: power cuts, editors, ``jq``, other programs, backups restored in part. For each
it says by hand what each mode keeps. ``123_5678`` are the records 1, 2, 3, a record that tells of a gap, and 5 to 8. Then
transcripts are damaged at random, and the repair is held against an oracle, written from docs/format.md and not from the code.
"""
