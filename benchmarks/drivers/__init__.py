"""One driver for each way to keep a conversation: ``python -m benchmarks.drivers NAME FOLDER``, in that way's own environment.

A driver is timed inside its own process, which waits for one command a line on its standard input. Nothing here needs more than
the standard library and what is measured: the packages of the peers do not meet each other, nor transcript_store.
"""
