"""Ring queues on Apache Kafka."""
