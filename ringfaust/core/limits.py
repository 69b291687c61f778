"""Upper bounds on what comes from outside, each with its reason. No number hides elsewhere."""

NAME_CHARS = 249
"""Longest queue, consumer, session and group name: what Kafka allows for a topic's name."""

ID_CHARS = 512
"""Longest message id. An id stands in keys and in each event about its message."""

HEADERS = 10_000
"""Most headers of a record. Their number is stored in two bytes."""

CREDIT = 100_000
"""Most unsettled deliveries of one consumer: those of a hot queue are held in memory."""

CREDIT_BYTES = 1 << 40
"""Most bytes that a consumer may say it can hold."""

CONSUMERS = 10_000
"""Most consumers attached to one queue: each dispatch looks through them."""

PRIORITIES = 10
"""0 to 9, as in JMS."""

ENDED_REMEMBERED = 1_000
"""Ended deliveries remembered for each consumer, so that a late settle gets its reason (R103)."""

DEPARTED_REMEMBERED = 1_000
"""Detached consumers of a queue whose ended deliveries are still remembered."""

HOLDERS = 64
"""Names kept with a message of consumers that held it: their length is stored in two bytes."""

SWEEP_AT_ONCE = 10_000
"""Most timed transitions in one sweep; the rest waits for the next, so that no sweep blocks."""

REFILL = 1_000
"""Rows read at a time when a window has run empty and the store holds more."""

SEQUENCE_BITS = 56
"""Bits of a sequence number: at a million messages a second it lasts for 2,000 years."""

WHOLE = (1 << 63) - 1
"""Greatest whole number of a setting: what Java, and with it Spark, can hold."""

TIME_MS = 1 << 47
"""Latest time, in ms since 1970 (the year 6429), so that a position has a fixed width."""

RETAINED = 100_000
"""Most messages that an address keeps for later queues: a new one gets all in one step."""

XIDS = 1_000
"""Most distributed transactions open in one partition: each is looked for among all."""

XID_OPERATIONS = 10_000
"""Most sends and acks in one distributed transaction: its commit is one step."""

SELECTOR_CHARS = 4_096
"""Longest message selector: it is stored with its consumer, and judged for each message."""

SELECTOR_DEPTH = 100
"""How deep a selector may nest: each level is a call within a call when it is judged."""
