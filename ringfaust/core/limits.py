"""Upper bounds on everything that comes from outside, each with its reason."""

from typing import Final

NAME_CHARS = 249
"""Longest queue, consumer, session and group name: Kafka's limit for a topic name."""

ID_CHARS = 512
"""Longest message id. The id is part of keys and of each event about its message."""

HEADERS = 10_000
"""Most headers of a record. The count is stored in two bytes."""

ACKS = 1_000
"""Most deliveries in one ack."""

CREDIT = 100_000
"""Most unsettled deliveries of one consumer. Those of a busy queue are held in memory."""

CREDIT_BYTES = 1 << 40
"""Largest byte credit of a consumer."""

CONSUMERS = 10_000
"""Most consumers attached to one queue. Each dispatch iterates over them."""

CONSUMER_PRIORITIES = 100
"""Most different priorities of the consumers of one queue. Each has a round-robin cursor in the
queue's row, which is written with every message (R120)."""

CONSUMER_COST_BYTES = 24
"""What each consumer of a queue counts among the bytes of a step when another one comes or goes:
all of them are looked at then, several times."""

SESSION_CONSUMERS = 1_000
"""Most consumers of a session. A rollback is a sign of life of each, so it stores all of them."""

GROUPS = 100_000
"""Most message groups whose owner a queue remembers while none of their messages is in it."""

PRIORITIES: Final = 10
"""0 to 9, as in JMS."""

ENDED_REMEMBERED = 1_000
"""Ended deliveries remembered for each consumer, so that a late settle gets a reason (R103)."""

SENT_IDS = 100_000
"""Most message ids that the dedup window of one queue remembers, give or take a page (R119)."""

DEPARTED_REMEMBERED = 1_000
"""Detached consumers of a queue whose ended deliveries are still remembered."""

HOLDERS = 64
"""Names of former holders kept with a message. Their length is stored in two bytes."""

SWEEP_AT_ONCE = 10_000
"""Most timed transitions in one sweep. The rest waits for the next, so that no sweep blocks."""

EXPIRE_BYTES = 4 * 1024 * 1024
"""Bytes of the messages that another command expires first. It exceeds it by one message at most;
the rest waits for the sweep."""

UNHEARD_RECHECK_MS = 1_000
"""When a sweep looks again at a consumer that seems silent, or at a transaction that seems overdue:
a heartbeat or a decision may not have been read yet."""

LATE = 64
"""Messages placed before those at which dispatch has looked for a selector, in each priority, that
are remembered one by one. With one more, dispatch goes back to the first of them."""

STEP_TRANSITIONS = 5_000
"""Messages that a command changes or looks at in one transaction (R114). The rest of it follows in
the next one."""

STEP_BYTES = 16 * 1024 * 1024
"""Bytes of these messages. A step exceeds it by one message at most."""

HEADER_COST_BYTES = 128
"""What each header of a message of over 1,000 bytes counts among these bytes: a tiny one takes as
much time as that."""

REFILL = 1_000
"""Rows read at a time when the decoded window is empty and the store holds more."""

REFILL_BYTES = 4 * 1024 * 1024
"""Bytes of these rows. A read exceeds it by one row at most."""

SEQUENCE_BITS: Final = 56
"""Bits of a sequence number: enough for 2,000 years at a million messages per second."""

WHOLE = (1 << 63) - 1
"""Largest integer setting: the range of a Java long, so that Spark can hold it too."""

TIME_MS = 1 << 47
"""Latest time, in ms since 1970 (the year 6429), so that a position has a fixed width."""

ROW_COST_BYTES = 256
"""What each row of a queue or address that is only looked at counts among the bytes of a step, and
each row of a queue, its consumers and deliveries when it is decoded."""

NAME_COST_BYTES = 24
"""What each character of a message's id and group counts among these bytes: they are in its row and
in each output about it, where a character takes up to twelve bytes."""

HOLDER_COST_BYTES = 4
"""The same for the names of those who held it, which are in its row alone."""

TEXT_COST_BYTES = 12
"""What each character of a selector counts where the row that has it is stored."""

REFUSAL_COST_BYTES = 1_024
"""What each delivery that one ack of several cannot settle counts: an event and a reply."""

LOOK_COST_BYTES = 8
"""What each number that is looked at in memory counts, and each consumer that is offered a
message."""

CONFIGURED_COST = 2
"""How often a queue's selector counts among the bytes of a step that stores its row, which may have
it twice. A queue that takes it up writes it into an event, too."""

PATTERNS = 1_000
"""Most names with `*` or `#` in a configuration. The name of each queue and address is compared
with all of them."""

PATTERN_COST_BYTES = 4
"""What each of them counts among the bytes of a step for each word of a name that is compared."""

SUBSCRIPTIONS = 10_000
"""Most queues of one address. A send copies its message into each of them."""

SUBSCRIPTIONS_BYTES = 256 * 1024
"""Bytes of the names of these queues, in ASCII with escapes such as `\\u20ac`. They are in one row,
which is stored with each send to the address and takes six times as much at most."""

MEMBER_COST_BYTES = 16
"""What each of them counts among the bytes of a step when another one is created: the names of all
of them are counted and stored."""

RETAINED = 100_000
"""Most messages that an address retains. A new queue receives all of them in one step."""

COPIED_CHARS = 330
"""Longest name of a copied partition, with its topic's name, number and id. It is in the row that
each batch writes; a topic's name has at most 249 characters, and its id 22."""

COPIED_PARTITIONS = 1_000
"""Partitions of repartitioned topics whose position is kept in a row that each batch writes."""

REVISION = (1 << 31) - 1
"""Latest revision of the configuration that can be applied."""

XIDS = 1_000
"""Most distributed transactions open in one partition. Finding one is a linear search."""

XIDS_OF_OWNER = 100
"""Most of them that one owner has open, so that it leaves room for others."""

XID_TIMEOUT_MS = 24 * 60 * 60 * 1_000
"""Longest time that a distributed transaction may stay open without being prepared."""

XID_OPERATIONS = 10_000
"""Most sends and acks in one distributed transaction. An ack in mode `client` counts each delivery
that it settles."""

SELECTOR_CHARS = 4_096
"""Longest message selector. It is stored with its consumer and evaluated for each message."""

SELECTOR_COST_BYTES = 512
"""What each of these characters counts among the bytes of a step when the selector is read."""

SCAN_COST_BYTES = 32
"""What each selector of a queue's consumers counts among these bytes when a message is placed
at a position that they have passed."""

EVALUATION_COST_BYTES = 8
"""What each evaluation of a selector counts among these bytes, with its operations, and what it
searches with LIKE."""

OPERATION_COST_BYTES = 48
"""What each name, value, calculation and condition of a selector counts among these bytes when it
is evaluated. To read a number from a header of 64 characters and add it takes 1.5 us."""

LIKE_CHARS = 32_768
"""Longest text that LIKE searches. Of a longer one, which only a header of Kafka can be, the result
is unknown, as of null: a search takes time for each character."""

LIKES = 10_000
"""Most patterns of LIKE in the selectors of the consumers of one queue, all of which look at a
message in one step. One with `_` between two `%` counts as several; see `like_cost`."""

OPERATIONS = 40_000
"""Most names, values, calculations and conditions in the selectors of the consumers of one queue:
the first use of a queue compiles all of them in one step, where each takes 10 us and 350 bytes.
When they look at a message, each takes 1.5 us."""

SELECTOR_DEPTH = 100
"""How deeply a selector may nest. Each level is a nested call when it is evaluated."""
