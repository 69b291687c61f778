"""Everything that talks to Kafka outside Faust: transactions, readers, offsets, topics, names."""
