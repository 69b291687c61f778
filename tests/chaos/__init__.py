"""Kill workers under load and check the accounts. See __main__."""
