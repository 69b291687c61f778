"""The Faust host: ring queues as a stream worker."""
