"""Bad environments: the wrong folder, a damaged file, a full disk, another user's permissions.

Two incidents stand behind these tests. A store that called "no valid header" the same as "no conversation" initialized a
fresh one over a file whose first block had been lost. And a store that met a FIFO where its file should have been waited
for a writer for ever. So: whatever is found, the answer is the right error, and what was found is left as it was.
"""
