"""The checks of commands, by subject. Each refuses its command, or says what is to be done.

Rules of this package
---------------------
1. A check changes nothing, so a refused command has changed nothing (R103). It reads, and it finds
   queues through `transitions.opening`, which may complete them first: that is a step of its own.
2. A check returns the stages of its command, in order; none if there is nothing to do. What
   performs a stage cannot refuse its command: `CommandRefused` is raised here only.
3. What depends on earlier stages, which may fill other transactions (R114), is checked in its turn:
   a search, and the place of a consumer.
"""
