"""Hosts: they move bytes between the pure core and the world."""
