"""A library that keeps up by itself: ``transcript-store keep``."""
