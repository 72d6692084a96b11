"""Tests that play in a world, as plain functions: for pytest without any plugin, and beside any."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from reach_worker.agent.agent import Agent
from reach_worker.testing.world import World

Story = Callable[..., Coroutine[Any, Any, None]]


def in_world(
    agents: Sequence[Agent] | Callable[[], Sequence[Agent]] = (), **given: Any
) -> Callable[[Story], Callable[..., None]]:
    """Make a plain test function of an async one, whose first parameter is a new :class:`World` each time.

    Takes what :class:`World` takes; where agents remember something, a function that makes them anew for each
    test. Other parameters stay, so fixtures and ``parametrize`` work as ever::

        @in_world([shouter], breaker={"streak": 2})
        async def test_shouting(world):
            assert (await world.call("text.shout", {"text": "x"})).result == {"text": "X"}
    """

    def as_test(story: Story) -> Callable[..., None]:
        parameters = list(inspect.signature(story).parameters.values())
        of_class = parameters[:1] if parameters[0].name == "self" else []

        def test(*bound: Any, **fixtures: Any) -> None:
            made = agents() if callable(agents) else agents
            asyncio.run(_play(functools.partial(story, *bound), World(made, **given), fixtures))

        test.__name__, test.__qualname__, test.__doc__ = story.__name__, story.__qualname__, story.__doc__
        test.__module__ = story.__module__
        vars(test)["__signature__"] = inspect.Signature([*of_class, *parameters[len(of_class) + 1 :]])
        vars(test)["pytestmark"] = list(getattr(story, "pytestmark", ()))
        return test

    return as_test


async def _play(story: Story, world: World, fixtures: dict[str, Any]) -> None:
    async with world:
        await story(world, **fixtures)
