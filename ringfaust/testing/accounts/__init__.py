"""Reconcile the accounts of an application from its topics, offset by offset (R100)."""
