"""The bytes: records in and out, control and replies, events, stored rows. No I/O."""
