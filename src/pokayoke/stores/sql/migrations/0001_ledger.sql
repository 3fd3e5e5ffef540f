-- One row per effect; what stays last is long.
CREATE TABLE pokayoke_records (
    key {text} PRIMARY KEY,
    args_hash TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    claim_id TEXT NOT NULL,
    lease_until {double} NOT NULL,
    tool {text} NOT NULL,
    contract TEXT NOT NULL,
    run_id {text} NOT NULL,
    claimed_at {double} NOT NULL,
    owner TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    resolver TEXT NOT NULL,
    dead_since {double},
    settled_at {double},
    output_ok BIGINT NOT NULL,
    failure TEXT NOT NULL,
    reference TEXT NOT NULL,
    decided_by TEXT NOT NULL,
    compensates TEXT NOT NULL,
    output {bytes}
);

-- Most records are completed: those that are not are found here.
CREATE INDEX pokayoke_records_state ON pokayoke_records (state) WHERE state <> 'completed';

CREATE INDEX pokayoke_records_tool ON pokayoke_records (tool);

CREATE INDEX pokayoke_records_run ON pokayoke_records (run_id);

CREATE INDEX pokayoke_records_claimed ON pokayoke_records (claimed_at);

CREATE INDEX pokayoke_records_settled ON pokayoke_records (settled_at) WHERE settled_at IS NOT NULL;

CREATE TABLE pokayoke_runs (
    run_id {text} PRIMARY KEY,
    body TEXT NOT NULL,
    touched_at {double} NOT NULL
);

CREATE TABLE pokayoke_counters (
    name {text} PRIMARY KEY,
    calls BIGINT NOT NULL,
    amount {double} NOT NULL,
    touched_at {double} NOT NULL
);

CREATE TABLE pokayoke_approvals (
    fingerprint {text} PRIMARY KEY,
    id {text} NOT NULL,
    tool TEXT NOT NULL,
    contract TEXT NOT NULL,
    arguments {bytes} NOT NULL,
    run_id TEXT NOT NULL,
    asked_at {double} NOT NULL,
    expires_at {double} NOT NULL,
    status TEXT NOT NULL,
    kind TEXT NOT NULL,
    decider TEXT,
    reason TEXT,
    decided_at {double}
);

CREATE INDEX pokayoke_approvals_id ON pokayoke_approvals (id);

CREATE INDEX pokayoke_approvals_status ON pokayoke_approvals (status);

CREATE TABLE pokayoke_switches (
    scope {text} PRIMARY KEY,
    body TEXT NOT NULL
);

CREATE TABLE pokayoke_rates (
    tool {text} PRIMARY KEY,
    body TEXT NOT NULL
);

CREATE TABLE pokayoke_audit (
    number {serial},
    at {double} NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    who TEXT NOT NULL,
    reason TEXT NOT NULL,
    data TEXT NOT NULL
);
