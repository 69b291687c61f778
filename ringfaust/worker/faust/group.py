"""The group of workers: only workers with equal settings may be in it (R113).

The fingerprint of a worker's settings is part of the name of its assignment protocol. The broker
admits a member only if it has a protocol in common with all others, so it refuses a worker with
other settings, even if two start at the same moment. The check here comes first and says which
worker has the other settings.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import REQUEST_TIMEOUT_S, GroupDescription, KafkaAdmin, open_admin
from ringfaust.kafka.names import worker_group, worker_protocol
from ringfaust.kafka.shared_clients import SharedClients

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.2
_REMEDY = (
    "`partitions`, `clock` and `cloud_events` in worker.yaml must be the same on all workers, and "
    "so must queues.yaml until the first `ringfaust apply`. To change queues.yaml, start this "
    "worker with the old one and run `ringfaust apply`; to change the others, stop all workers "
    "first."
)


class DifferentSettings(RingfaustError):
    """Workers with other settings are running, so this one did not start (R113).

    What to do: give all workers the same files. To change settings, stop all workers first.
    """

    def __init__(self, group: str, mine: str, found: GroupDescription) -> None:
        whose = " and ".join(f"{each.client_id} at {each.host}" for each in found.members[:3])
        more = f" and {len(found.members) - 3} more" if len(found.members) > 3 else ""
        super().__init__(
            f"the workers of group {group} have other settings: {whose}{more} "
            f"{'has' if len(found.members) == 1 else 'have'} {found.protocol}, and this worker has "
            f"{mine}. {_REMEDY}"
        )


class RefusedByGroup(RingfaustError):
    """The brokers did not let the worker join its group; it has stopped."""


def refusal(error: Exception | None, group: str, session_s: float) -> RefusedByGroup | None:
    """Why a worker stops that gets this error when it joins; None: it asks again."""
    match error:
        case InconsistentGroupProtocolError():  # one with other settings started just now, too
            text = f"refuse this worker in group {group}: a worker with other settings has joined "
            text += f"it. {_REMEDY}"
        case GroupAuthorizationFailedError():
            text = f"do not allow this user to join group {group}: grant read and describe on it"
        case InvalidSessionTimeoutError():
            text = (
                f"do not accept session_timeout_ms: {session_s * 1000:.0f} in group {group}: "
                "choose one between their group.min.session.timeout.ms (6000 by default) and "
                "group.max.session.timeout.ms (1800000 by default)"
            )
        case _:
            return None
    return RefusedByGroup(f"the brokers {text}")


def twin_joined(group: str, identity: str) -> RefusedByGroup:
    """The error of a worker whose identity another process has, too (R125)."""
    return RefusedByGroup(
        f"another worker has joined group {group} as {identity}, which is this worker's identity: "
        "its data directory is a copy, and host and path are the same. Delete the file `identity` "
        "in one of the two directories, and start that worker again"
    )


async def check_group(worker: WorkerConfig, fingerprint: str) -> None:
    """Check that the running workers, if any, have the same settings.

    A worker that was killed stays in the group until its session has expired, so this waits that
    long for workers with other settings to leave.

    Raises:
        DifferentSettings: they have other settings.
        BrokerUnreachable: no broker answers.
        BrokerRefused: a broker answers but cannot describe the group.
    """
    group = worker_group(worker.application)
    mine = worker_protocol(fingerprint)
    deadline_s = time.monotonic() + worker.session_timeout_ms / 1000 + 1
    async with open_admin(worker.brokers()) as admin:
        found = await _others(admin, group, mine)
        if found is None:
            return
        log.warning(
            "workers with other settings are in group %s; waiting until they leave, or the "
            "sessions of killed ones expire",
            group,
        )
        while time.monotonic() < deadline_s:
            await asyncio.sleep(_ASK_AGAIN_S)
            found = await _others(admin, group, mine)
            if found is None:
                return
    raise DifferentSettings(group, mine, found)


async def remove_from_group(
    clients: SharedClients, group: str, identity: str, rejoin: Callable[[], None]
) -> None:
    """Remove a worker that is gone from its group, and take part in the rebalance at once (R126).

    With the next heartbeat this worker would learn of it, too.

    Raises:
        TimeoutError: the brokers do not answer in time.
        KafkaError: they do not do it.
    """
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        await clients.ask(lambda each: KafkaAdmin(each.admin).remove_member(group, identity))
    rejoin()


async def leave_group(worker: WorkerConfig, identity: str) -> bool:
    """Remove a worker from the group. Returns whether others are in it.

    Raises:
        BrokerUnreachable: no broker answers.
        BrokerRefused: a broker answers but does not do it.
    """
    group = worker_group(worker.application)
    async with open_admin(worker.brokers()) as admin:
        await admin.remove_member(group, identity)
        return bool((await admin.group(group)).members)


async def _others(admin: KafkaAdmin, group: str, mine: str) -> GroupDescription | None:
    """The group, if its members have other settings. During a rebalance nobody knows: None."""
    found = await admin.group(group)
    return found if found.members and found.protocol and found.protocol != mine else None
