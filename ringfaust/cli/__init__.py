"""The command line. It sits on top: nothing imports it."""
