"""What handlers give back or say, as plain JSON."""

from pydantic import BaseModel


def plain(value: object) -> object:
    """A pydantic model as plain data. Raises ``TypeError`` for what cannot be written as JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
