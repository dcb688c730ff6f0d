"""Fuzzing: arbitrary bytes for everything that reads bytes.

``targets`` says what is tried and what has to hold; ``corpus/<target>/`` are inputs that found something, or that begin well.
Plain pytest replays them; ``python -m tests.fuzz`` (extra ``[fuzz]``) looks for new ones.
"""
