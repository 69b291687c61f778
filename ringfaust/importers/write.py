"""Write what an import found: queues.yaml, worker.yaml and, if there are roles, acls.sh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ringfaust.config.documents import ConfigError, shipped
from ringfaust.config.load import load
from ringfaust.importers.imported import CannotImport, Imported
from ringfaust.visible import visible

_HEADER = """\
# Imported from {source} by `ringfaust import`, which printed one line for each setting. Read both
# before you use it. `ringfaust config check --config DIR` validates it.
#
# A producer sends a message by writing to the topic of its queue. Records of a topic whose queue is
# "{{header:ringfaust-queue}}" name their queue in that header.
"""
_ACLS = """\
#!/bin/sh
# Imported from {source}: who may send, consume and operate. Kafka's ACLs name users, not roles:
# replace each User:ROLE by the users who had the role. Usage: sh acls.sh HOST:PORT
set -eu
: "${{1:?usage: sh acls.sh HOST:PORT [--command-config FILE]}}"
servers=$1
shift
"""


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, which queues.yaml must not have."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write(imported: Imported, folder: Path) -> list[Path]:
    """Write the files into a folder, which is created, and check them.

    Returns:
        The files.

    Raises:
        CannotImport: the folder has such a file already, or the files would not be valid, because
            names of the other broker contradict each other. Nothing is left in the folder.
    """
    files = {"queues.yaml": _queues(imported), "worker.yaml": _worker()}
    if imported.acls:
        files["acls.sh"] = _acls(imported)
    for name in files:
        if (folder / name).exists():
            raise CannotImport(folder / name, 0, "exists already: choose another folder for --to")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    try:
        load(folder)
    except ConfigError as error:
        for name in files:
            (folder / name).unlink()
        fault = error.faults[0]
        text = f"nothing was written: {fault.field}: {fault.text}"
        raise CannotImport(imported.source, 0, text) from None
    return [folder / name for name in files]


def _queues(imported: Imported) -> str:
    data = imported.queues_data()
    body = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=100,
        allow_unicode=True,
    )  # fmt: skip
    return _HEADER.format(source=visible(imported.source.name)) + (body if data else "{}\n")


def _worker() -> str:
    return (shipped("config") / "worker.yaml").read_text("utf-8").partition("\n")[2]


def _acls(imported: Imported) -> str:
    lines = [f'kafka-acls.sh --bootstrap-server "$servers" "$@" {acl}' for acl in imported.acls]
    return _ACLS.format(source=visible(imported.source.name)) + "\n".join(lines) + "\n"
