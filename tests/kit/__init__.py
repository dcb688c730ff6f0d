"""What tests are made of. A test imports from here, or from the helpers beside it, and never from another test.

``cases``: many small cases as one test. ``children``: forked processes that say what they did. ``damage``: transcripts damaged on
purpose, by hand or at random; ``mutations``: the same for bytes of any kind. ``gate``: calls that wait for each other. ``interruption``:
Ctrl-C at every line that a call executes. ``machines``: this file system, except for one thing. ``meanwhile``: a simulated disk on which
another process works at one moment. ``messages``: messages that many tests store. ``oracle``, ``oracle_of_repair``: what docs/format.md
says of any bytes. ``postgres``, ``proxy``: a server and a bad network. ``scratch``: folders in memory. ``tools``: programs of this
machine. ``trees``: the files below a folder. ``unprivileged``: scripts that run without root's rights. ``vectors``: what Go wrote.
"""
