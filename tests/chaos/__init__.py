"""Kill workers under load, and count what comes out. See __main__."""
