"""What the store costs beside doing the same work by hand: ``python -m benchmarks`` prints a table of ratios."""
