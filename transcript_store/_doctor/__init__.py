"""``doctor``: tests whether a directory has what conversations need."""
