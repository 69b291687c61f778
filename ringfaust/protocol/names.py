"""The names that clients and workers must agree on."""

from __future__ import annotations

from ringfaust.protocol.records import Role


def topic_name(application: str, role: Role | str) -> str:
    """Return the name of an application's topic, such as `ringfaust.control`."""
    return f"{application}.{role}"


def worker_group(application: str) -> str:
    """Return the consumer group of an application's workers."""
    return application


def apply_transactional_id(application: str) -> str:
    """Return the id of all who apply a configuration: who begins shuts out who has not finished.

    It contains a slash, which no application name may, so it belongs to no other application.
    """
    return f"{application}-apply/configuration"


def client_transactional_id(application: str, client: str) -> str:
    """Return the transactional id of a client. `client` must be unique in the cluster."""
    return f"{application}-{client}"
