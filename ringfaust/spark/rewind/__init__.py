"""The contents of a ring at any moment, the changes between two, and the effect of other settings.

Everything is derived from the events. `moment` finds the steps that were done, `contents` the
messages that a ring held then, `diff` what changed; `replay` and `whatif` find what the core would
have done with other settings. docs/rewind.md explains the results.
"""
