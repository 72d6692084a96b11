"""The JSON object in a message, where whoever reads it takes what is none for one that says nothing."""

from typing import Any

import orjson


def object_in(body: bytes) -> dict[str, Any]:
    """The object, empty where there is none. Never raises."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}
