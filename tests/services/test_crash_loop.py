"""A router that dies again and again wears out nothing that it merely had in its hands."""

from reach_worker.core.token_bucket import IntakePolicy
from tests.services.scripted import manifest
from tests.services.stage import OnStage, Stage, rules

CRASHES = 50
DELIVERY_LIMIT = 20


async def killed_again_and_again(stage: Stage, router: OnStage) -> OnStage:
    for _ in range(CRASHES):
        stage.kill(router)
        router = await stage.router(manifests=[manifest("a")], settled=False)
        await stage.pass_time(6)
        await stage.settle()
    return router


async def test_what_waits_in_the_window_is_worn_out_by_no_number_of_crashes() -> None:
    stage = Stage(policies=rules(intake=IntakePolicy(prefetch=30)))
    router = await stage.router(manifests=[manifest("a")])
    for number in range(100):
        stage.publish(f"t{number:02}")
    await stage.settle()
    assert len(router.desk.hands.waiting) == 30
    await killed_again_and_again(stage, router)
    assert not stage.letters()
    agent = await stage.agent("a", slots=10)
    await stage.pass_time(60)
    assert agent.ran == {f"t{number:02}": 1 for number in range(100)}
    assert {answer["attempt"] for answer in stage.answers()} == {1}


async def test_what_waits_keeps_its_order_over_crashes() -> None:
    stage = Stage(policies=rules(intake=IntakePolicy(prefetch=30)))
    router = await stage.router(manifests=[manifest("a")])
    for number in range(60):
        stage.publish(f"t{number:02}")
    await stage.settle()
    stage.kill(router)
    await stage.router(manifests=[manifest("a")])
    agent = await stage.agent("a")
    await stage.pass_time(60)
    assert list(agent.ran) == [f"t{number:02}" for number in range(60)]


async def test_of_many_that_were_delivered_only_the_one_that_kills_is_worn_out() -> None:
    """It stands in the middle of a full prefetch; each crash is the one of a turn that met it."""
    stage = Stage(policies=rules(intake=IntakePolicy(prefetch=30)))
    router = await stage.router(manifests=[manifest("a")])
    await stage.agent("a", slots=10)
    for number in range(60):
        stage.publish(f"t{number:02}")
    for _ in range(DELIVERY_LIMIT + 30):
        stage.clock.advance(1.0)
        await stage.settle(rounds=1)
        if any(delivery.correlation_id == "t40" for delivery in router.bus.inbox.waiting.get("intake", ())):
            stage.kill(router)
            router = await stage.router(manifests=[manifest("a")], settled=False)
    await stage.pass_time(20)
    (letter,) = stage.letters()
    assert letter.task_id == "t40"
    assert len(stage.answers()) == 59
