"""Measurements of the real thing: a broker, a store, processes."""
