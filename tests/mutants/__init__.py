"""Faults put into the engine on purpose, each to be found: see `__main__`."""
