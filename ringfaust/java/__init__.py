"""Find a Java runtime, and fetch pinned jars for the embedded broker and Spark."""

from enum import StrEnum


class KafkaVersion(StrEnum):
    """A version of Apache Kafka that ringfaust supports and the embedded broker runs."""

    V3_6 = "3.6"
    V3_9 = "3.9"
    V4_1 = "4.1"
    V4_2 = "4.2"


DEFAULT_KAFKA = KafkaVersion.V4_1
