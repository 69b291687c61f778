"""Read the configuration and the stored messages of other brokers."""
