"""Keys of sealed conversations: key providers and key files.

.. code-block:: python

    from transcript_store import read_key_file, write_key_file

    write_key_file("my.key")          # once; keep a copy where the conversations are not
    key = read_key_file("my.key")
    assert len(key) == 32
"""

from transcript_store._sealing.keys import KeyProvider, read_key_file, write_key_file

__all__ = ["KeyProvider", "read_key_file", "write_key_file"]
