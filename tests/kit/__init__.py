"""What tests are made of. A test imports from here, or from the helpers beside it, and never from another test.

``children``: forked processes that say what they did. ``mutations``: bytes that go wrong. ``scratch``: folders in memory.
"""
