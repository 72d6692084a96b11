"""The proof by breaking it: two routers and six agents at work, while faults of every kind happen to them and the broker.

What really ran is known from outside: every handler writes each run into a ledger of its process, the caller knows what
the broker confirmed, and dead letters and unmatched tasks are read from their queues. In the end the three have to agree
with the reach log. Which tasks come and which faults happen when follows from a seed alone.
"""
