"""The routing bench: the rules of ``core`` at work in simulated fleets, so that a formula is judged by figures.

Nothing here knows a broker or waits for a clock: time is an event list, chance is seeded. The router is made of the real
parts (manifests, fleet, plan, leases, breaker, track record); only agents, tasks and the wire are simulated.
"""
