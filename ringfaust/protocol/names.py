"""The names that clients and workers must agree on."""

from __future__ import annotations

from ringfaust.protocol.records import Role


def topic_name(application: str, role: Role | str) -> str:
    """Return the name of an application's topic, such as `ringfaust.control`."""
    return f"{application}.{role}"


def worker_group(application: str) -> str:
    """Return the consumer group of an application's workers."""
    return application


def client_transactional_id(application: str, client: str) -> str:
    """Return the transactional id of a client. `client` must be unique in the cluster."""
    return f"{application}-{client}"
