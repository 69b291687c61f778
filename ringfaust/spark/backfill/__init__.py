"""Write rows of a lake to a producers' topic, each exactly once (docs/backfill.md).

source → mapping → check → write: rows are read, mapped to records, and checked with the code that a
worker decodes them with. Only then are they written, in transactions that include the progress.
"""
