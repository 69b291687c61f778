"""The settings of a simulated application, drawn from the seed and printed with a failure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ringfaust.core.catalog import Catalog, catalog_of
from ringfaust.processor.processor import ProcessorConfig
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import Role
from ringfaust.protocol.route_changes import feeds_of, routes_of
from ringfaust.protocol.stored_rows import Feeds

PARTITIONS = 2
TOPICS = {str(role): str(role) for role in Role if role is not Role.PRODUCER}
QUEUES = ("a", "b", "c", "d")
KEEPER = "keeper"
"""The consumer that sends heartbeats all the time."""
CREATED = "e"
"""A queue that exists only after an operator has created it."""
ADDED = "f"
"""A queue that a later configuration declares."""
ADDRESS = "prices"
DECLARED = f"{ADDRESS}::all"
MEMBERS = (DECLARED, f"{ADDRESS}::ann", f"{ADDRESS}::bob", f"{ADDRESS}::k1", f"{ADDRESS}::x.red")
ROUTES = [
    {"topic": "keyed", "queue": "{key}"},
    {"topic": "timed", "queue": "{key}"},
    {"topic": "far", "queue": "{header:ringfaust-queue}"},
]
REMOVABLE = "timed"
"""The topic whose route configurations remove and bring back."""

SELECTORS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "": lambda properties: True,
    "n > 2": lambda properties: properties.get("n", 0) > 2,
    "n IS NULL": lambda properties: "n" not in properties,
    "colour = 'red'": lambda properties: properties.get("colour") == "red",
}
"""Each with its meaning, written independently of the engine."""


def partition_for(name: str) -> int:
    """The partition of a queue or an address."""
    return partition_of(name.partition("::")[0], PARTITIONS)


class Plan(NamedTuple):
    """What a history depends on besides its steps."""

    queues: dict[str, dict[str, Any]]
    addresses: dict[str, dict[str, Any]]
    cache_bytes: int = 1 << 30
    batch_records: int = 100
    slice_records: int = 100
    refill: int = 1_000
    step_transitions: int = 5_000
    """How much of a command fits into one transaction (R114)."""
    far_partitions: int = 1
    has_non_persistent: bool = False
    """Some messages are non-persistent: a crash may lose them, an uninterrupted run does not."""
    has_keeper: bool = False
    """A consumer without credit sends heartbeats to each queue, and must never time out (R110)."""
    as_artemis: bool = False
    """Queues have `compat: artemis`, whose rules the bookkeeper does not know. It only counts; an
    uninterrupted run shows what they must hold and emit."""

    def document(self) -> dict[str, Any]:
        """What `queues.yaml` says when the workers start."""
        return {"queues": self.queues, "addresses": self.addresses, "routes": ROUTES}

    def catalog(self) -> Catalog:
        return catalog_of(self.document())

    def feeds(self) -> Feeds:
        return feeds_of(self.document(), PARTITIONS)

    def processor_config(self) -> ProcessorConfig:
        return ProcessorConfig(
            control_topic="control",
            repartition_topic="hop",
            routes=routes_of(self.feeds(), repartitioned=False),
            max_record_bytes=10_000,
            log_is_clock=False,
            step_transitions=self.step_transitions,
        )


def random_plan(rng: random.Random) -> Plan:
    """Small rings, small caches, and some of the features."""
    addresses: dict[str, dict[str, Any]] = {}
    if rng.random() < 0.4:
        subscription = random_settings(rng) | {"selector": rng.choice(list(SELECTORS))}
        addresses[ADDRESS] = {
            "retroactive_count": rng.choice([0, 1, 3]),
            "subscriptions": {"all": subscription},
        }
    as_artemis = rng.random() < 0.15
    settings = {"compat": "artemis", "redelivery_jitter": 0.5} if as_artemis else {}
    return Plan(
        queues={name: random_settings(rng) | settings for name in QUEUES[: rng.randint(1, 4)]},
        addresses=addresses,
        cache_bytes=rng.choice([0, 2_500, 1 << 30]),
        batch_records=rng.choice([1, 3, 100]),
        slice_records=rng.choice([1, 2, 100]),
        refill=rng.choice([1, 2, 3, 1_000]),
        step_transitions=rng.choice([1, 2, 5_000]),
        far_partitions=rng.choice([1, 3]),
        has_non_persistent=not as_artemis and rng.random() < 0.2,
        has_keeper=rng.random() < 0.3,
        as_artemis=as_artemis,
    )


def random_settings(rng: random.Random) -> dict[str, Any]:
    """Settings of one queue."""
    settings: dict[str, Any] = {"consumer_timeout": rng.choice([0, 0, 60, 300])}
    for name, share, values in (
        ("ring_size", 0.9, (1, 2, 2, 3, 3, 5)),
        ("evict", 0.4, ("head", "lowest_priority")),
        ("shrink", 0.3, ("eager",)),
        ("evicted_payload", 0.2, ("reference", "none")),
        ("scheduled_when_full", 0.3, ("displace",)),
        ("max_attempts", 0.5, (-1, 1, 2, 3)),
        ("redelivery_delay", 0.3, (5, 20)),
        ("redelivery_multiplier", 0.3, (1.5, 2.0)),
        ("redelivery_delay_max", 0.2, (30,)),
        ("max_active_consumers", 0.3, (1, 2)),
        ("max_backup_consumers", 0.3, (1, 2)),
        ("batch", 0.3, (2, 3)),
        ("window", 0.15, (1, 3)),
        ("window_lease", 0.5, (0, 40, 100)),
        ("max_messages", 0.15, (1, 3, 5)),
        ("max_bytes", 0.15, (20, 60)),
        ("max_message_bytes", 0.1, (20,)),
        ("when_full", 0.5, ("drop_lowest_priority", "reject_newest", "drop_newest", "block")),
        ("max_redrives", 0.2, (0, 1)),
    ):
        if rng.random() < share:
            settings[name] = rng.choice(values)
    # By a generator of its own: other seeds stay what they were.
    if (draw := random.Random(repr(settings))).random() < 0.3:
        settings["dedup_window"] = draw.choice((50, 1_000_000))
    return settings
