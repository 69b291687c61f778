"""The engine beside the real ActiveMQ Artemis: the same operations, the same answers."""
