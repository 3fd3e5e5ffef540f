-- Lists by time, in pages: each index ends with what its pages are ordered by.
DROP INDEX pokayoke_records_state;

CREATE INDEX pokayoke_records_state ON pokayoke_records (state, claimed_at, key) WHERE state <> 'completed';

DROP INDEX pokayoke_records_tool;

CREATE INDEX pokayoke_records_tool ON pokayoke_records (tool, claimed_at, key);

DROP INDEX pokayoke_records_run;

CREATE INDEX pokayoke_records_run ON pokayoke_records (run_id, claimed_at, key);

DROP INDEX pokayoke_records_claimed;

CREATE INDEX pokayoke_records_claimed ON pokayoke_records (claimed_at, key);

DROP INDEX pokayoke_approvals_status;

CREATE INDEX pokayoke_approvals_status ON pokayoke_approvals (status, expires_at, fingerprint);

CREATE INDEX pokayoke_audit_subject ON pokayoke_audit (subject);

-- The lowest of ladder and latch, so that stopped runs are found without reading every run.
ALTER TABLE pokayoke_runs ADD COLUMN mode TEXT NOT NULL DEFAULT 'normal';

UPDATE pokayoke_runs SET mode = CASE
    WHEN body LIKE '%"mode":"stopped"%' THEN 'stopped'
    WHEN body LIKE '%"mode":"final_answer"%' THEN 'final_answer'
    ELSE 'safe_mode'
END
WHERE body NOT LIKE '%"mode":"normal"%' OR (body LIKE '%"taints":[%' AND body NOT LIKE '%"taints":[]%');

CREATE INDEX pokayoke_runs_mode ON pokayoke_runs (mode, touched_at, run_id);

CREATE INDEX pokayoke_runs_touched ON pokayoke_runs (touched_at, run_id);
