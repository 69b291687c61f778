"""Writes Kafka transactions: workers, clients, imports, redrives and Spark tasks all use it."""
