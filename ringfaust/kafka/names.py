"""Every name that ringfaust uses on a Kafka cluster: topics, consumer groups, transactional ids.

No name may change: state, progress and fencing are found by it. Names of producers' topics come
from `queues.yaml`. The rules that clients share are in `protocol.names`; `topic_name` and
`worker_group` are re-exported from there.

A Kafka producer that starts with a transactional id fences the earlier producer with the same id.
What has a slash in its name belongs to nothing else: no application or job may have one.
"""

from __future__ import annotations

from ringfaust.protocol.names import topic_name, worker_group

__all__ = ["topic_name", "worker_group"]
"""Those of another module. Names that are defined here need no entry."""


def worker_protocol(fingerprint: str) -> str:
    """Return the name of the workers' assignment protocol, which members of a group must share.

    It contains the fingerprint of their settings, so that brokers refuse a worker with others
    (R113).
    """
    return f"ringfaust-{fingerprint}"


def partition_transactional_id(application: str, partition: int) -> str:
    """Return the id of the producer that commits the batches of one partition."""
    return f"{application}-{partition}"


def second_transactional_id(first: str) -> str:
    """Return the id of the other of two producers that take turns."""
    return f"{first}/second"


def repartition_transactional_id(application: str, topic: str, partition: int) -> str:
    """Return the id of the producer that repartitions one partition of a producer's topic."""
    return f"{application}-hop/{topic}/{partition}"


def clock_transactional_id(application: str, process: str) -> str:
    """Return the id with which a worker process asks for the brokers' time."""
    return f"{application}-clock/{process}"


def redrive_transactional_id(application: str) -> str:
    """Return the id of the producer that redrives (ADR 45)."""
    return f"{application}-redrive"


def redriven_group(application: str, page: int) -> str:
    """Return the consumer group that says which records of a page have been redriven (ADR 45)."""
    return f"{application}-redriven/{page}"


def session_transactional_id(application: str, partition: int) -> str:
    """Return the id of the producer that the scenario runner uses for sessions."""
    return f"{application}-sessions-{partition}"


def backfill_group(application: str, job: str) -> str:
    """Return the consumer group that holds the progress of a `ringfaust spark backfill` job."""
    return f"{application}-backfill-{job}"


def lake_redrive_group(application: str, job: str) -> str:
    """Return the consumer group with the progress of a redrive that an earlier version began."""
    return f"{application}-redrive-{job}"


def import_group(application: str, digest: str) -> str:
    """Return the consumer group that holds the progress of `ringfaust import` with one file."""
    return f"{application}-import/{digest}"


def import_transactional_id(application: str, digest: str) -> str:
    """Return the id of the producer of `ringfaust import` with one file."""
    return f"{application}-import/{digest}"


def slice_transactional_id(group: str, number: int) -> str:
    """Return the id of the producer that writes one slice of a backfill."""
    return f"{group}/{number}"


def spark_group(application: str) -> str:
    """Return the consumer group whose offsets say how far `ringfaust spark ring` has come."""
    return f"{application}-spark/ring"


def lake_group(application: str) -> str:
    """Return the consumer group whose offsets say how far `ringfaust spark lake` has come."""
    return f"{application}-spark/lake"


def spark_transactional_id(application: str, task: int) -> str:
    """Return the id of the producer that writes the outputs of one task of `spark ring`."""
    return f"{application}-spark/{task}"


def admin_client_id(application: str) -> str:
    """Return the client id that `ringfaust topics` shows in broker logs and quotas."""
    return f"{application}-topics"
