"""Ring queues on Apache Kafka: a full ring evicts the oldest message that no consumer holds."""

__version__ = "0.1.0"
