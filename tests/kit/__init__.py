"""What tests are made of. A test imports from here, or from the helpers beside it, and never from another test.

``children``: forked processes that say what they did. ``damage``: transcripts damaged on purpose, by hand or at random;
``mutations``: the same for bytes of any kind. ``interruption``: Ctrl-C at every line that a call executes. ``machines``: this
file system, except for one thing. ``nobody``: scripts that run without root's rights. ``oracle``, ``oracle_of_repair``: what
docs/format.md says of any bytes. ``scratch``: folders in memory. ``trees``: what stands below a folder. ``values``: generated
values. ``vectors``: what Go wrote.
"""
