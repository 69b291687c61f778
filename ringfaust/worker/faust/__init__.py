"""Faust and its Kafka client: the group, fetching, seeking, decompression."""
