"""What runs: the command line, the demo and the embedded broker."""
