"""What the store costs beside doing the same work by hand, and beside what others use: ``python -m benchmarks``."""
