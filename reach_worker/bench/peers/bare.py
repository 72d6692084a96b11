"""The floor under any product on aio-pika: forward and acknowledge, on quorum queues, and nothing else.

``python -m reach_worker.bench.peers.bare ROLE URL PREFIX TASKS``. Publishes, confirms and acknowledgements overlap as
far as the prefetch goes. Nothing is decided, recorded or answered.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import aio_pika
import orjson
import uvloop
from aio_pika.abc import AbstractIncomingMessage

from reach_worker.bench.live.lines import listening, say
from reach_worker.bench.live.usage import Usage
from reach_worker.bench.peers.tally import Tally

AGENTS: Final = 4
PREFETCH: Final = {"router": 50, "agents": 100}


async def serve(role: str, url: str, prefix: str, tasks: int) -> None:
    """Forward, or take, until a signal ends it."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(PREFETCH[role])
        if role == "router":
            exchange = channel.default_exchange
            targets = [f"{prefix}.agent-{number}" for number in range(AGENTS)]
            turn = 0

            async def forward(message: AbstractIncomingMessage) -> None:
                nonlocal turn
                turn += 1
                orjson.loads(message.body)
                copy = aio_pika.Message(
                    message.body, delivery_mode=2, message_id=message.message_id, reply_to=message.reply_to
                )
                await exchange.publish(copy, targets[turn % AGENTS])
                await message.ack()

            await (await channel.get_queue(f"{prefix}.intake", ensure=False)).consume(forward)
        else:
            tally = Tally(tasks)

            async def take(message: AbstractIncomingMessage) -> None:
                await message.ack()
                tally.one()

            for number in range(AGENTS):
                await (await channel.get_queue(f"{prefix}.agent-{number}", ensure=False)).consume(take)
        say("up", **asdict(Usage.own()))
        with listening({"usage": lambda: say("usage", **asdict(Usage.own()))}):
            await asyncio.Event().wait()


def main(arguments: Sequence[str]) -> None:
    """Run one role."""
    role, url, prefix, tasks = arguments
    uvloop.run(serve(role, url, prefix, int(tasks)))


if __name__ == "__main__":
    main(sys.argv[1:])
