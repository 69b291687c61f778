"""The module `ringfaust._native`, in C: twins of a few Python functions (ADR 43).

`layouts` writes what both have to agree on; `ringfaust.compiled` imports the module.
"""
