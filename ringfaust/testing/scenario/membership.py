"""Removes the members of a consumer group, as an operator may after a worker has died.

Otherwise the brokers reassign a dead worker's partitions only after its session has timed out.
"""

from __future__ import annotations

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest


async def remove_members(bootstrap_servers: str, group: str) -> None:
    """Remove all present members of a group.

    Raises:
        KafkaError: a broker failed or refused to remove a member.
    """
    client = AIOKafkaClient(bootstrap_servers=bootstrap_servers)
    try:
        await client.bootstrap()
        coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await client.send(coordinator, DescribeGroupsRequest([group], False))
        for described in answer.to_object()["groups"]:
            for member in described["members"]:
                request = LeaveGroupRequest(group, member["member_id"])
                left = await client.send(coordinator, request)
                if left.error_code:
                    raise for_code(left.error_code)
    finally:
        await client.close()
