"""What a ring queue means: pure and deterministic, no clock, no I/O, no Kafka, no bytes.

Read in this order: `model` (the nouns), `command` (what may come in), `effect` (what may go
out), `engine` (every transition). `table`, `state` and `queue` hold what the engine reads and
writes; a host gives them a `Store`.
"""
