"""The worker: ring queues on Faust, Kafka and RocksDB."""
