"""The scores of a capability's agents under one policy, kept from one decision to the next.

Between two decisions little changes: a slot was taken, an outcome was counted, time has passed. So it is kept what each
score was made of, and only what is no longer so is worked out again; where it is the load alone, only what follows from
that. What is kept is always what would be worked out anew.
"""

from collections.abc import Iterable, Sequence
from operator import ne
from typing import Final, NamedTuple

from reach_worker.core.fleet import Load, Offer
from reach_worker.core.makings import Known, Measured, Recipe, believed, declared, loaded, measured, utc_of
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.scoring import NOT_YET, Scene, Scored, place_of
from reach_worker.core.success import DecayedCount, Track, TrackRecord

MOST_POLICIES: Final = 4
"""Of a capability: the live one, its shadow, and some that were replaced."""
_EMPTY: Final = Track()
"""Of an agent that has no record. Only ever read."""
_Ground = tuple[object, ...]


class Field(NamedTuple):
    """Those that may be chosen, in the order of their ids: their scores, what those are ranked by, and what is hoped."""

    names: Sequence[str]
    scored: Sequence[Scored]
    places: Sequence[float]
    optimistic: Sequence[float]


class _Line:
    """One offer: its score, and the layers it is made of.

    ``ground``: all that those before the load depend on but the manifest, and first what matters to the belief alone.
    """

    __slots__ = ("declared", "ground", "known", "load", "measured", "offer", "scored")

    def __init__(self, offer: Offer, policy: RoutingPolicy) -> None:
        self.offer, self.declared = offer, declared(offer, policy)
        self.ground: _Ground = ()
        self.load: Load | None = None
        self.measured: Measured | None = None
        self.known: Known | None = None
        self.scored = NOT_YET

    def know(self, ground: _Ground, track: Track, step: int, scene: Scene, recipe: Recipe) -> Known:
        """What is known of the agent; what was measured is measured again if that has changed."""
        if ground != self.ground or self.known is None:
            utc = utc_of(self.offer, step)
            if ground[1:] != self.ground[1:] or self.measured is None:
                self.measured = measured(self.declared, self.offer, track, utc, scene)
            belief = scene.fleet.record.belief(*self.offer.key, utc)
            self.known, self.ground = believed(self.measured, belief, recipe), ground
        return self.known


class Scoreboard:
    """A line for each offer. As long as it is here, no other policy has the id of its own.

    Another manifest makes another offer, and so another board: the lines of the others go along.
    """

    def __init__(
        self, policy: RoutingPolicy, offers: tuple[Offer, ...], before: "Scoreboard | None" = None
    ) -> None:
        kept = {} if before is None else {id(line.offer): line for line in before.lines}
        self.policy, self.offers = policy, offers
        self.record: TrackRecord | None = None if before is None else before.record
        self._recipe = Recipe.of(policy)
        self.lines: list[_Line] = [kept.get(id(offer)) or _Line(offer, policy) for offer in offers]
        self.names = [offer.agent.agent_id for offer in offers]
        self._loads, self._grounds = [line.load for line in self.lines], [line.ground for line in self.lines]
        self._scored = [line.scored for line in self.lines]
        self._places = [place_of(one.score) for one in self._scored]
        self._optimistic = [one.optimistic for one in self._scored]
        self._entered = -1
        self._tracks: list[Track] = []
        self._overall: list[DecayedCount] = []
        self._agents = [offer.agent for offer in offers]
        self._phases = [offer.phase for offer in offers]
        self._when: tuple[int, int] | None = None
        self._steps: list[int] = []

    def field(self, scene: Scene, loads: Sequence[Load], closed: Sequence[Sequence[object]]) -> Field:
        """The agents to which no gate is ``closed``, with their scores as they are now."""
        grounds = self._seen(scene)
        if loads != self._loads or grounds != self._grounds:
            self._update(scene, loads, grounds, closed)
        if not any(closed):
            return Field(self.names, self._scored, self._places, self._optimistic)
        open_ = [at for at, verdicts in enumerate(closed) if not verdicts]
        return Field(
            [self.names[at] for at in open_],
            [self._scored[at] for at in open_],
            [self._places[at] for at in open_],
            [self._optimistic[at] for at in open_],
        )

    def _seen(self, scene: Scene) -> list[_Ground]:
        """Of each offer all that its score depends on now, but load and manifest."""
        record = scene.fleet.record
        if record is not self.record or record.entered != self._entered:
            self._look_up(record)
        if self._when != (scene.step, scene.begun):
            self._when = (scene.step, scene.begun)
            self._steps = [scene.step if phase <= scene.begun else scene.step - 1 for phase in self._phases]
        grounds: list[_Ground] = [
            (
                overall.version,
                step,
                track.version,
                agent.smoothed_load,
                len(agent.roster.instances),
            )
            for step, track, overall, agent in zip(
                self._steps, self._tracks, self._overall, self._agents, strict=True
            )
        ]
        last, match = scene.fleet.last_in_session(scene.ask.session_id), scene.ask.match
        if last is None and match is None:
            return grounds
        return [
            (*ground, name == last, None if match is None else match.get(name, 0.0))
            for ground, name in zip(grounds, self.names, strict=True)
        ]

    def _look_up(self, record: TrackRecord) -> None:
        """Find the record of each offer: another one was entered."""
        if record is not self.record:
            self._forget()
        self.record, self._entered = record, record.entered
        self._tracks = [record.tracks.get(offer.key, _EMPTY) for offer in self.offers]
        self._overall = [record.overall.get(name, _EMPTY.overall) for name in self.names]

    def _forget(self) -> None:
        self._grounds = [()] * len(self.lines)
        for line in self.lines:
            line.ground = ()

    def _changed(self, loads: Sequence[Load], grounds: Sequence[_Ground]) -> set[int]:
        return {*_differing(loads, self._loads), *_differing(grounds, self._grounds)}

    def _update(
        self,
        scene: Scene,
        loads: Sequence[Load],
        grounds: Sequence[_Ground],
        closed: Sequence[Sequence[object]],
    ) -> None:
        """Work out again what has changed. In new lists: a decision that was made keeps what it saw."""
        self._scored, self._places = self._scored.copy(), self._places.copy()
        self._optimistic = self._optimistic.copy()
        for at in self._changed(loads, grounds):
            if closed[at]:
                continue
            load, ground = loads[at], grounds[at]
            line = self.lines[at]
            line.load = load
            line.scored = loaded(
                line.know(ground, self._tracks[at], self._steps[at], scene, self._recipe), load, self._recipe
            )
            self._loads[at], self._grounds[at] = load, ground
            self._scored[at], self._places[at] = line.scored, place_of(line.scored.score)
            self._optimistic[at] = line.scored.optimistic


def _differing(now: Sequence[object], before: Sequence[object]) -> Iterable[int]:
    return () if now == before else [at for at, differs in enumerate(map(ne, now, before)) if differs]


def scoreboard(scene: Scene) -> Scoreboard:
    """The board that is kept for this capability and policy."""
    boards = scene.fleet.boards.setdefault(scene.ask.capability, {})
    key = id(scene.policy)
    board: Scoreboard | None = boards.get(key)
    if board is None or board.offers is not scene.offers:
        if len(boards) > MOST_POLICIES:
            boards.clear()
        board = boards[key] = Scoreboard(scene.policy, scene.offers, board)
    return board
