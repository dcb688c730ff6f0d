"""Write the golden conversations that are not there yet, and what a reader sees in them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.compat.seen import seen
from tests.compat.writers import GOLDEN, files

V1 = Path(__file__).parent / "v1"

if __name__ == "__main__":
    for name, write in GOLDEN.items():
        folder = V1 / name
        if folder.exists():
            continue
        for path, data in files(write()).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        folder.with_suffix(".json").write_text(json.dumps(seen(folder), indent=1) + "\n")
        print(f"wrote {folder}")
