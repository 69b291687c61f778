"""The state of a partition on disk: RocksDB, its identity, and its changelog."""
