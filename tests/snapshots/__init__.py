"""``FileStore``: a stored snapshot comes back unchanged, or an error says why not.

The store shares its files with a Go library that writes in place, trusts a file for its name and lists what it can read. The
tests here are of three kinds: its files and ours mean the same; what it lets pass is an error here, each by its own name;
and nothing that somebody else does to the directory (other keys, other bytes, links, pipes) is believed.
"""
