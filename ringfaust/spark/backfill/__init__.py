"""Rows of a lake become records of a producers' topic, each exactly once (docs/backfill.md).

source → mapping → check → write: rows are read, made into records, judged by the core's own reading
of them before anything is written, and written in transactions that hold the progress as well.
"""
