"""A small fleet to try reach_worker with: agents that do real work, their manifests, and tasks for them."""
