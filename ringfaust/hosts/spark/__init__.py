"""The Spark host: the rings of a partition within a Structured Streaming job."""
