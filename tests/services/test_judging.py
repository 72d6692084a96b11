"""What is logged beside the live policy, and what people say of results."""

from reach_worker.core.announcement import feedback_body, feedback_key
from reach_worker.core.message import Message
from reach_worker.core.policy import RoutingPolicy
from reach_worker.ports import Decided
from tests.services.stage import Stage, rules


async def test_a_shadow_policy_is_logged_and_never_acts() -> None:
    live = RoutingPolicy(
        preset="declared", score_bonus={"a": 0.5}, shadow=RoutingPolicy(score_bonus={"b": 0.5})
    )
    stage = Stage(policies=rules(routing=live))
    await stage.router()
    await stage.agent("a")
    await stage.agent("b")
    stage.publish("t1")
    await stage.settle()

    (decided,) = stage.rows(Decided)
    assert decided.decision["agent"] == stage.dispatches("t1")[0].agent_id == "a"
    assert decided.decision["shadow"]["agent"] == "b"
    assert decided.decision["shadow"]["scores"]["b"] > decided.decision["shadow"]["scores"]["a"]


async def test_feedback_counts_at_once() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    await stage.settle()
    record = stage.r1.desk.fleet.record
    for verdict in ("good", "bad", "bad", "wrong-agent", "nonsense"):
        body = feedback_body("a", "text.echo", verdict)
        message = Message(feedback_key("a"), body, {}, stage.names.events, mandatory=False)
        await stage.r1.bus.publish([message])
    await stage.settle()

    track = record.of("a", "text.echo")
    assert track is not None
    assert track.feedback.rate() == 0.25
    assert track.rejections.rate() == 1.0
