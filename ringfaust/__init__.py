"""Ring queues on Apache Kafka: fixed size, oldest out first, never one that a consumer holds."""

__version__ = "0.1.0"
