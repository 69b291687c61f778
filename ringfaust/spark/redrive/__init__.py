"""Send dead or evicted messages of a lake back to their topics (R43); see docs/backfill.md.

request → messages → records → `backfill`, which checks the records and writes each exactly once.
"""
