"""What exists, reached without rewriting it: HTTP endpoints, chat models, programs and foreign workers as agents."""

from reach_worker.adapters.agents import (
    AdapterAgent,
    chat_agent,
    command_agent,
    http_agent,
    load_agent,
    queue_agent,
)

__all__ = ["AdapterAgent", "chat_agent", "command_agent", "http_agent", "load_agent", "queue_agent"]
