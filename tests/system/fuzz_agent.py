"""An agent that writes down the text of each task that it does."""

import os
from collections.abc import Mapping
from typing import Any, Final

from reach_worker import Agent

NOTES: Final = "FUZZ_NOTES"
"""The variable that names the file where each run leaves its text on a line."""

echo = Agent("echo", max_concurrency=50)


@echo.capability(
    "text.echo",
    input_schema={"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
)
async def _echo(payload: Mapping[str, Any]) -> dict[str, Any]:
    file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{payload['text']}\n".encode("utf-8", "backslashreplace"))
    os.close(file)
    return {"text": payload["text"]}
