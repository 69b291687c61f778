"""Files of other brokers, and what an import writes for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ringfaust.config import load_queues
from ringfaust.importers.artemis import import_artemis
from ringfaust.importers.imported import CannotImport, Imported
from ringfaust.importers.write import write


def artemis(folder: Path, text: str) -> Imported:
    """Import a broker.xml with this text in its core."""
    path = folder / "broker.xml"
    path.write_text(f"<configuration xmlns:xi='x'><core>{text}</core></configuration>")
    return import_artemis(path)


def written(folder: Path, read: Callable[[], Imported]) -> Imported | None:
    """What was imported and written; None, and no file, if it was refused with one sentence."""
    try:
        found = read()
        write(found, folder / "to")
    except CannotImport as error:
        assert "\n" not in str(error)
        assert not [*(folder / "to").glob("*")]
        return None
    load_queues(folder / "to" / "queues.yaml")
    return found
