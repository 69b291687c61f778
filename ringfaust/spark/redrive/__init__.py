"""Send dead or evicted messages of a lake back to their topics (R43); see docs/redrive.md.

request → records → candidates, which `ringfaust.redrive` sends, each exactly once.
"""
