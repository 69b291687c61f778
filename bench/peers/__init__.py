"""The systems that are compared, one module each."""
