"""Write the golden folders that are not there yet, and what a reader sees in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compat import copies, stores, writers
from tests.compat.seen import seen

HERE = Path(__file__).parent


def write(folder: Path, files: dict[str, bytes], look: Callable[[Path], Any] | None = None) -> None:
    if folder.exists():
        return
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    if look is not None:
        folder.with_suffix(".json").write_text(stores.as_json(look(folder)))
    print(f"wrote {folder}")


if __name__ == "__main__":
    for name, make in writers.GOLDEN.items():
        write(HERE / "v1" / name, writers.files(make()), seen)
    for name, make in stores.STORES.items():
        write(HERE / "v1-stores" / name, stores.files(make()), lambda path: stores.seen(stores.opened(path, path.name)))
    for name, copy in copies.COPIES.items():
        copied, conversation = copy()
        write(
            HERE / "v1-copies" / name,
            {f"copy/{path}": data for path, data in copied.items()}
            | {f"conversation/{path}": data for path, data in conversation.items()},
        )
