"""A seeded simulator of the Faust host: see `__main__`."""
