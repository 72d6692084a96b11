"""Values: small classes whose instances are never changed once they are made.

``@value(frozen=True, slots=True)`` is a frozen dataclass to the type checker, which finds whoever would change one. At
run time the guard is left out: with it every field is set by a call of its own, which takes four times as long, and a
router makes some twenty-five of them for each task.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool) -> Callable[[type[Any]], type[Any]]:
        """A dataclass that can be hashed as a frozen one can."""
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["value"]
