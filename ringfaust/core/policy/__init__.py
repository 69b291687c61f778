"""Where the rules of `compat: artemis` differ from the default ones."""
