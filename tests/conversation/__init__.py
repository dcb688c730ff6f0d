"""ConversationStore as it is documented: what each call does, returns and refuses, on a disk that behaves.

Written from the docstrings. The crash tests prove what survives; these prove that there is something worth surviving: that
what was put in comes out, that a refused call changed nothing, and that ``exists()`` and ``initialize()`` never disagree.
"""
