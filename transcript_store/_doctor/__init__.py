"""``doctor``: tries whether a directory gives what conversations need."""
