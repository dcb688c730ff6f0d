"""What Go wrote: snapshots, stores, and what its validators answer. Nobody on this project wrote these files."""

from pathlib import Path

VECTORS = Path(__file__).parent.parent / "vectors"
