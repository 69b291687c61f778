"""Kafka, a worker and a clock in this process, for tests of programs that use the client."""
