"""Writes what the repository derives from its code: schemas, contracts and pages of reference."""
