from reach_worker.core.duplicates import TaskState
from tests.services.scripted import Reply
from tests.services.stage import Stage


async def test_a_task_goes_in_an_agent_does_it_the_answer_comes_back() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("echo")
    stage.publish("t1")
    await stage.settle()
    answer = stage.answer("t1")
    assert (answer["status"], answer["agent"], answer["attempt"]) == ("succeeded", "echo", 1)
    assert answer["result"] == {"said": "done"}
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.ready() == {"caller": 1}
    assert stage.unacknowledged() == 0
    assert stage.r1.leases == 0


async def test_the_answer_says_how_many_chunks_there_were() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("echo", script=lambda _: Reply(chunks=2))
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["chunks"] == 2
