"""A broker.xml that says what a history needs, among settings that a wider match says otherwise."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ringfaust.config import QueuesConfig
from ringfaust.importers.artemis import import_artemis
from ringfaust.importers.imported import CannotImport, Verdict
from tests.oracle.operations import Settings

_DEFAULTS = {"max-delivery-attempts": 10, "redelivery-delay": 0, "default-ring-size": -1}
_OTHERS = {
    "max-delivery-attempts": (-1, 1, 4), "redelivery-delay": (0, 7, 90_000),
    "default-ring-size": (-1, 1, 7),
}  # fmt: skip


def write_broker_xml(
    path: Path, name: str, settings: Settings, delay_ms: int, rng: random.Random
) -> None:
    """Write a file that gives the queue `name`, whose first word is `shop`, these settings.

    Each setting stands at one of the matches that cover the queue, or nowhere if it is the default;
    wider matches have other values. Some files declare the queue: then the ring size stands there,
    and Artemis ignores the others.
    """
    wanted = {
        "max-delivery-attempts": settings.max_attempts, "redelivery-delay": delay_ms,
        "default-ring-size": settings.ring_size,
    }  # fmt: skip
    declared = ""
    is_declared = rng.random() < 0.5
    matches: dict[str, list[str]] = {match: [] for match in (name, "shop.*", "shop.#", "#")}
    for tag, value in wanted.items():
        levels = list(matches)
        others = levels
        if tag == "default-ring-size" and is_declared:
            size = f' ring-size="{_written(value, rng)}"'
            declared = (
                f'<addresses><address name="{name}"><anycast><queue name="{name}"'
                f"{size if value != -1 else ''}/></anycast></address></addresses>"
            )
        elif value != _DEFAULTS[tag] or rng.random() < 0.5:
            at = rng.randrange(len(levels))
            matches[levels[at]].append(f"<{tag}>{_written(value, rng)}</{tag}>")
            others = levels[at + 1 :]
        else:
            others = []
        for match in others:
            if rng.random() < 0.5:
                matches[match].append(f"<{tag}>{rng.choice(_OTHERS[tag])}</{tag}>")
    matches["other.#"] = ["<default-ring-size>2</default-ring-size>"]
    written = [
        f'<address-setting match="{match}">{"".join(rng.sample(lines, len(lines)))}'
        "</address-setting>"
        for match, lines in matches.items()
        if lines
    ]
    path.write_text(
        '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">'
        f"<address-settings>{''.join(rng.sample(written, len(written)))}</address-settings>"
        f"{declared}</core></configuration>"
    )


def _written(value: int, rng: random.Random) -> str:
    return rng.choice([str(value), f"${{no.such.property:{value}}}"])


def imported_fields(path: Path, name: str) -> dict[str, Any]:
    """All settings that the queue has here once the file is imported.

    Raises:
        CannotImport: something was not taken over.
    """
    imported = import_artemis(path)
    for finding in imported.findings:
        if finding.verdict is Verdict.NONE:
            raise CannotImport(path, finding.line, str(finding))
    catalog = QueuesConfig.model_validate(imported.queues_data()).catalog()
    return asdict(catalog.spec(name, {}))
