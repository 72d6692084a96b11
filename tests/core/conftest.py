"""Hypothesis without its time limit for an example: how long one takes says more of the machine than of the rule."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
