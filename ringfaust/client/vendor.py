"""The private APIs of aiokafka that the client uses. `tests/client/test_vendor.py` pins them.

The client stands on `ringfaust.protocol` alone, so it does not share this with `ringfaust.kafka`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.transaction import EndTxnRequest


class EndOnce:
    """Fails the transaction when the response to the request that ends it is lost (R117).

    aiokafka would send the request again. If the first one is still on its way, it could then end
    the next transaction. The producer can now only stop; its successor gets a new epoch, so the
    brokers refuse the old request.
    """

    def __init__(self, producer: AIOKafkaProducer) -> None:
        client: Any = producer.client
        self._producer: Any = producer
        self._send: Callable[..., Awaitable[Any]] = client.send

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """Send a request and return its response."""
        try:
            return await self._send(node_id, request, **options)
        except NodeNotReadyError:
            raise  # there was no connection, so it was not sent
        except KafkaError as error:
            if isinstance(request, EndTxnRequest):
                transactions = self._producer._txn_manager  # noqa: SLF001
                transactions.fatal_error(error)
                # Retrieve the error, which asyncio would log if nobody waits for the end.
                transactions.wait_for_transaction_end().exception()
            raise


def end_once(producer: AIOKafkaProducer) -> None:
    """Make a transactional producer keep R117. Call it before `start`."""
    client: Any = producer.client
    client.send = EndOnce(producer).send
