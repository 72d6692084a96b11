-- The reach log. All times are UTC microseconds, except where a column says otherwise.
--
-- Rows may reach this file twice, late and in any order: after a crash, out of a spill file, from two routers. So
-- every table is either append-only with a key that tells a repetition from news, or (tasks, manifests) made of
-- columns that move one way only.
--
-- Ids from outside are random text. In a large file each random place in an index costs a page of its own to write, so
-- a task id is looked up once, in `tasks`, and everything else hangs on that row's number, which grows with time.

-- One row per life of a task; a replay begins a new life. The row of the highest life is the task as it is now.
-- accepted = 0: only later rows of it have arrived so far, and what it was accepted with is still to come.
CREATE TABLE tasks (
    id            INTEGER PRIMARY KEY,
    task_id       TEXT    NOT NULL,
    life          INTEGER NOT NULL,
    accepted      INTEGER NOT NULL DEFAULT 0,
    flow_id       TEXT    NOT NULL,
    capability    TEXT    NOT NULL DEFAULT '',
    caller        TEXT    NOT NULL DEFAULT '',
    router        TEXT    NOT NULL DEFAULT '',
    first_seen    INTEGER NOT NULL,
    dispatch_id   TEXT,                        -- the latest one, with its attempt, time and router
    attempt       INTEGER NOT NULL DEFAULT 0,
    dispatched_at INTEGER NOT NULL DEFAULT 0,
    holder        TEXT,
    parked_at     INTEGER NOT NULL DEFAULT 0,
    parked_reason TEXT,
    ended         TEXT,                        -- the end that counts; its other columns are in `ends`
    ended_at      INTEGER,
    reason        TEXT,
    state         TEXT    NOT NULL GENERATED ALWAYS AS (
        CASE
            WHEN ended IS NOT NULL THEN ended
            WHEN parked_at > dispatched_at THEN 'unmatched'
            ELSE 'under_way'
        END
    ) VIRTUAL,
    UNIQUE (task_id, life)
) STRICT;

CREATE INDEX tasks_by_flow ON tasks (flow_id) WHERE flow_id <> task_id; -- most tasks are a flow of their own
CREATE INDEX tasks_by_time ON tasks (first_seen);
CREATE INDEX tasks_open    ON tasks (first_seen) WHERE ended IS NULL;
CREATE INDEX tasks_failed  ON tasks (first_seen) WHERE ended <> 'succeeded';

-- detail: the whole decision as JSON. The columns before it repeat what is asked for most.
CREATE TABLE decisions (
    id          INTEGER PRIMARY KEY,
    task        INTEGER NOT NULL,
    decision_id TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    router      TEXT    NOT NULL,
    policy      TEXT,
    verdict     TEXT,
    chosen      TEXT,
    score       REAL,
    margin      REAL,
    detail      TEXT    NOT NULL,
    UNIQUE (task, decision_id)
) STRICT;

CREATE TABLE dispatches (
    id          INTEGER PRIMARY KEY,
    dispatch_id TEXT    NOT NULL UNIQUE,
    task        INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    agent_id    TEXT    NOT NULL,
    capability  TEXT    NOT NULL,
    decision_id TEXT    NOT NULL,
    router      TEXT    NOT NULL,
    at          INTEGER NOT NULL
) STRICT;

CREATE INDEX dispatches_by_task ON dispatches (task);

-- When an agent said that it begins: asked of tasks with side effects only.
CREATE TABLE starts (
    dispatch_id TEXT    NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The same outcome seen again is no news; another one of the same dispatch is. Of several current ones of a dispatch
-- only the first was counted in `success`.
CREATE TABLE outcomes (
    id          INTEGER PRIMARY KEY,
    task        INTEGER NOT NULL,
    dispatch_id TEXT    NOT NULL,
    standing    TEXT    NOT NULL,
    outcome     TEXT    NOT NULL,
    instance_id TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    agent_id    TEXT    NOT NULL,
    capability  TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    duration_ms REAL,
    message     TEXT    NOT NULL,
    UNIQUE (task, dispatch_id, standing, outcome, instance_id)
) STRICT;

CREATE INDEX outcomes_by_agent ON outcomes (agent_id, capability, outcome, at);

-- Every end that was recorded. Two of one life are a fault, and are seen here.
CREATE TABLE ends (
    id             INTEGER PRIMARY KEY,
    task           INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    state          TEXT    NOT NULL,
    reason         TEXT,
    error          TEXT    NOT NULL,
    remember_until INTEGER NOT NULL,
    answer         BLOB,
    UNIQUE (task, at, state)
) STRICT;

CREATE TABLE waiters (
    id             INTEGER PRIMARY KEY,
    task_id        TEXT    NOT NULL,
    reply_to       TEXT    NOT NULL,
    correlation_id TEXT,
    at             INTEGER NOT NULL
) STRICT;

-- NULLs are all different to a UNIQUE constraint; here two waiters without a correlation id are the same one.
CREATE UNIQUE INDEX waiters_once
    ON waiters (task_id, reply_to, correlation_id IS NULL, ifnull(correlation_id, ''));

CREATE TABLE lost_answers (
    task_id  TEXT    NOT NULL,
    reply_to TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (task_id, reply_to, at)
) STRICT, WITHOUT ROWID;

CREATE TABLE feedback (
    task_id      TEXT    NOT NULL,
    agent_id     TEXT    NOT NULL,
    capability   TEXT    NOT NULL,
    verdict      TEXT    NOT NULL,
    better_agent TEXT,
    at           INTEGER NOT NULL,
    PRIMARY KEY (task_id, agent_id, at)
) STRICT, WITHOUT ROWID;

CREATE TABLE breaker_moves (
    at       INTEGER NOT NULL,
    agent_id TEXT    NOT NULL,
    router   TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    PRIMARY KEY (at, agent_id, router, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE manifests (
    id            INTEGER PRIMARY KEY,
    agent_id      TEXT    NOT NULL,
    manifest_hash TEXT    NOT NULL,
    version       TEXT    NOT NULL,
    first_seen    INTEGER NOT NULL,
    last_seen     INTEGER NOT NULL,
    body          TEXT    NOT NULL,
    UNIQUE (agent_id, manifest_hash)
) STRICT;

-- Decayed counts, as reach_worker.core.success has them; *_at is when they were last decayed.
CREATE TABLE success (
    agent_id        TEXT    NOT NULL,
    capability      TEXT    NOT NULL,
    slow_good       REAL    NOT NULL,
    slow_tries      REAL    NOT NULL,
    slow_at         INTEGER NOT NULL,
    fast_good       REAL    NOT NULL,
    fast_tries      REAL    NOT NULL,
    fast_at         INTEGER NOT NULL,
    recent_good     REAL    NOT NULL,
    recent_tries    REAL    NOT NULL,
    recent_at       INTEGER NOT NULL,
    week_good       REAL    NOT NULL,
    week_tries      REAL    NOT NULL,
    week_at         INTEGER NOT NULL,
    rejection_good  REAL    NOT NULL,
    rejection_tries REAL    NOT NULL,
    rejection_at    INTEGER NOT NULL,
    PRIMARY KEY (agent_id, capability)
) STRICT, WITHOUT ROWID;
