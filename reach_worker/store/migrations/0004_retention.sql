-- What outlives the reach log: success statistics are kept for ever, the tasks they come from are not. (The counts
-- themselves are in `success`.)

-- The service times of successes that were pruned, as far as an agent's newest ones are among them.
CREATE TABLE service_times (
    agent_id    TEXT    NOT NULL,
    capability  TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    outcome     INTEGER NOT NULL, -- the number that its row in `outcomes` had: two may end in one microsecond
    duration_ms REAL    NOT NULL,
    PRIMARY KEY (agent_id, capability, at, outcome)
) STRICT, WITHOUT ROWID;

-- What people said of results that were pruned.
CREATE TABLE judgements (
    id         INTEGER PRIMARY KEY,
    agent_id   TEXT    NOT NULL,
    capability TEXT    NOT NULL,
    verdict    TEXT    NOT NULL,
    at         INTEGER NOT NULL
) STRICT;

-- The same columns, those of the key first: otherwise SQLite 3.40 reports faults that are none when it checks the file.
CREATE TABLE feedback_in_order (
    task_id      TEXT    NOT NULL,
    agent_id     TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    capability   TEXT    NOT NULL,
    verdict      TEXT    NOT NULL,
    better_agent TEXT,
    PRIMARY KEY (task_id, agent_id, at)
) STRICT, WITHOUT ROWID;

INSERT INTO feedback_in_order (task_id, agent_id, at, capability, verdict, better_agent)
SELECT task_id, agent_id, at, capability, verdict, better_agent FROM feedback;

DROP TABLE feedback;

ALTER TABLE feedback_in_order RENAME TO feedback;
