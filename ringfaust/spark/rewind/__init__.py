"""What a ring held at any moment, what changed between two, and what another setting had evicted.

All of it is told by the events: `moment` says which steps had been done, `contents` what there was
then, `diff` what became of it, `replay` and `whatif` what the core would have done instead. What
the answers mean is in docs/rewind.md.
"""
