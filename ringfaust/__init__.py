"""Ring queues on Apache Kafka: a full ring evicts the oldest message that no consumer holds."""

from ringfaust import compiled as compiled

__version__ = "0.3.0"
