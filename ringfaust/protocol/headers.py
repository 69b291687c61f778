"""The names of ringfaust's headers. All start with one prefix; other headers pass through.

Headers with the prefix are read from a producer's record and, except those in `KEPT`, not passed
on. Output records carry the producer's other headers byte for byte, and then ringfaust's. An
undecodable record keeps all its headers but `XID_OWNER`.
"""

PREFIX = "ringfaust-"

# What a producer may set.
ID = "ringfaust-id"
PRIORITY = "ringfaust-priority"
GROUP = "ringfaust-group"
DELAY_MS = "ringfaust-delay-ms"
DELIVER_AT_MS = "ringfaust-deliver-at-ms"
TTL_MS = "ringfaust-ttl-ms"
EXPIRES_AT_MS = "ringfaust-expires-at-ms"
QUEUE = "ringfaust-queue"
"""The queue: for routes by header, and on all output."""
DELIVERY_MODE = "ringfaust-delivery-mode"
"""persistent, or non_persistent: a crash may lose it (R82). Dispatched records have the latter."""
XID = "ringfaust-xid"
"""The distributed transaction that the send waits for (R81)."""
XID_OWNER = "ringfaust-xid-owner"
"""Who began that transaction. Without it the send is refused (ADR 49)."""
PROPERTIES = "ringfaust-properties"
"""Typed properties for selectors: a JSON object of scalars (R15)."""
REDRIVES = "ringfaust-redrives"
"""How often the message was redriven from the dead or evicted topic (R43)."""
REDRIVE_OF = "ringfaust-redrive-of"
"""Which message is redriven: `queue/sequence`. Without it the record is no redrive (ADR 46)."""
KEPT = frozenset((PROPERTIES, REDRIVES))
"""Headers that belong to the message, and are passed on with the producer's."""

# What ringfaust sets.
SEQUENCE = "ringfaust-sequence"
SOURCE = "ringfaust-source"
"""topic/partition/offset of the producer's record."""
SOURCE_TOPIC_ID = "ringfaust-source-topic-id"
"""On the hop topic: the id of the producers' topic. A topic of the same name may have another."""
ENQUEUED_MS = "ringfaust-enqueued-ms"
TIME_MS = "ringfaust-time-ms"
CONSUMER = "ringfaust-consumer"
DELIVERY = "ringfaust-delivery"
ATTEMPT = "ringfaust-attempt"
HANDOVERS = "ringfaust-handovers"
REDELIVERED = "ringfaust-redelivered"
REASON = "ringfaust-reason"
CAUSE = "ringfaust-cause"
RING_SIZE = "ringfaust-ring-size"
READY = "ringfaust-ready"
AGE_MS = "ringfaust-age-ms"
TEXT = "ringfaust-text"
POSITION = "ringfaust-position"
"""Where the message stood: plain/sequence, due/time in ms/sequence, or none (§1)."""
UNDECODABLE_CONTENT = "ringfaust-unreadable"
"""Between host and processor: why the content of this record could not be read."""
TOO_MANY_HEADERS = "ringfaust-too-many-headers"
"""Between host and processor: how many headers this record has, none of which was read (R121)."""
