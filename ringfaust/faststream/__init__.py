"""A broker for FastStream, with the extra `faststream`. See docs/faststream.md.

It stands on the client. FastStream has no public interface for brokers of others: what is imported
here from `faststream._internal` is what its own brokers are made of.
"""

from ringfaust.faststream.broker import RingBroker, RingRouter
from ringfaust.faststream.message import RingMessage
from ringfaust.faststream.publisher import RingResponse
from ringfaust.faststream.testing import TestRingBroker

__all__ = ["RingBroker", "RingMessage", "RingResponse", "RingRouter", "TestRingBroker"]
