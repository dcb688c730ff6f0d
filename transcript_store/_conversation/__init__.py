"""One folder with its log: metadata, archive, lock, verification and repair."""
