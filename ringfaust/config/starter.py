"""The first configuration of an application: commented files for the answers of a new user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from ringfaust.config.documents import shipped
from ringfaust.errors import RingfaustError

_QUEUES = """\
# The queues. `ringfaust config check --config DIR` validates this file; the shipped
# config/queues.yaml explains every setting. All workers need the same file until the first
# `ringfaust apply`; then what was applied is in effect.

# Which queue the records of a topic go to. {routes_are}
routes:
{routes}

# {queues_are}
queues:
{queues}

# Settings of every queue that matches; `#` is any name.
settings:
  "#":
    max_attempts: 10            # deliveries before a message goes to {application}.dead
    # redelivery_delay_ms: 5000  # ms before a released message is delivered again
    # consumer_timeout_ms: 30000  # ms after which a silent consumer is detached
"""


class FilesExist(RingfaustError):
    """The folder has configuration files already; nothing was written. Choose another folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists already: choose another folder, or edit that file")


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterAnswers:
    """What a new user wants."""

    servers: str
    application: str
    topics: tuple[str, ...]
    per_key: bool
    """A ring for each key of a topic, instead of one for the topic."""
    ring_size: int


def starter_files(answers: StarterAnswers, partitions_of: Mapping[str, int]) -> dict[str, str]:
    """Return the texts of queues.yaml and worker.yaml.

    Args:
        answers: what the user wants.
        partitions_of: how many partitions the topics have that exist.
    """
    partitions = _partitions(answers, partitions_of)
    return {
        "queues.yaml": _queues(answers, partitions, partitions_of),
        "worker.yaml": _worker(answers, partitions),
    }


def write_starter(files: Mapping[str, str], folder: Path) -> None:
    """Write the files into a folder, which is created.

    Raises:
        FilesExist: the folder has one of them.
    """
    for name in files:
        if (folder / name).exists():
            raise FilesExist(folder / name)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")


def _partitions(answers: StarterAnswers, partitions_of: Mapping[str, int]) -> int:
    """A ring for each key needs no hop if the application has as many partitions as the topics."""
    found = [partitions_of[topic] for topic in answers.topics if topic in partitions_of]
    return max(set(found), key=found.count) if answers.per_key and found else 4


def _queues(answers: StarterAnswers, partitions: int, partitions_of: Mapping[str, int]) -> str:
    routes, queues = [], []
    for topic in answers.topics:
        name = f"{topic}.{{key}}" if answers.per_key else topic
        hops = answers.per_key and partitions_of.get(topic, partitions) != partitions
        routes.append(f"  - topic: {_quoted(topic)}\n    queue: {_quoted(name)}")
        if hops:
            routes.append(
                f"    hop: always    # this topic has {partitions_of[topic]} partitions, and the "
                f"application {partitions}"
            )
        pattern = f"{topic}.#" if answers.per_key else topic
        queues.append(f"  {_quoted(pattern)}:\n    ring_size: {answers.ring_size}")
    if answers.per_key:
        routes_are = "Each key of a topic has a queue of its own."
        queues_are = "A pattern declares every queue that matches it: # matches the key."
    else:
        routes_are = "Each topic has one queue."
        evicted = f"{answers.application}.evicted"
        queues_are = f"Each keeps the newest messages; older ones go to {evicted}."
    return _QUEUES.format(
        routes="\n".join(routes), queues="\n".join(queues), routes_are=routes_are,
        queues_are=queues_are, application=answers.application,
    )  # fmt: skip


def _worker(answers: StarterAnswers, partitions: int) -> str:
    """Return the shipped file, in which every setting is explained, with these answers."""
    lines = (shipped("config") / "worker.yaml").read_text("utf-8").splitlines()[1:]
    ours = {
        "application": _quoted(answers.application),
        "bootstrap_servers": _quoted(answers.servers),
        "partitions": str(partitions),
    }
    for index, line in enumerate(lines):
        name, colon, _ = line.partition(":")
        if colon and name in ours:
            lines[index] = f"{name}: {ours[name]}"
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return text as YAML, with quotes if it needs them."""
    return yaml.safe_dump(text, allow_unicode=True, width=1_000).splitlines()[0]
