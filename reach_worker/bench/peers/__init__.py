"""The same two hops by others: a bare forwarder, and task queues that happen to be installed."""
