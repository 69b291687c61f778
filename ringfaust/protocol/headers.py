"""The names of our headers. All start with one prefix; everything else passes through untouched.

Of a message's record the headers with our prefix are read and, but for those of `KEPT`, not passed
on; output records carry the others byte for byte, and then ours. A record that makes no sense keeps
all of its own.
"""

PREFIX = "ringfaust-"

# What a producer may say about its message.
ID = "ringfaust-id"
PRIORITY = "ringfaust-priority"
GROUP = "ringfaust-group"
DELAY_MS = "ringfaust-delay-ms"
DELIVER_AT_MS = "ringfaust-deliver-at-ms"
TTL_MS = "ringfaust-ttl-ms"
EXPIRES_AT_MS = "ringfaust-expires-at-ms"
QUEUE = "ringfaust-queue"
"""Names the queue, for routes by header and on all output."""
DELIVERY_MODE = "ringfaust-delivery-mode"
"""persistent, or non_persistent: a crash may lose it (R82). On dispatched records that it may."""
XID = "ringfaust-xid"
"""The distributed transaction that the send waits for (R81)."""
PROPERTIES = "ringfaust-properties"
"""Typed properties for selectors: a JSON object of scalars (R15)."""
REDRIVES = "ringfaust-redrives"
"""How often the message was sent again from the dead or evicted topic (R43)."""
KEPT = frozenset((PROPERTIES, REDRIVES))
"""Of ours those that are the message's own, and passed on with the producer's."""

# What we say about it.
SEQUENCE = "ringfaust-sequence"
SOURCE = "ringfaust-source"
"""topic/partition/offset of the producer's record."""
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
"""plain/sequence, due/time in ms/sequence, or none: where it stood (§1)."""
UNREADABLE = "ringfaust-unreadable"
"""Why a record's content could not be read; a stand-in for it, between host and road."""
