BEGIN TRANSACTION;
CREATE TABLE pokayoke_approvals (
    fingerprint TEXT PRIMARY KEY,
    id TEXT NOT NULL,
    tool TEXT NOT NULL,
    contract TEXT NOT NULL,
    arguments BLOB NOT NULL,
    run_id TEXT NOT NULL,
    asked_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    status TEXT NOT NULL,
    kind TEXT NOT NULL,
    decider TEXT,
    reason TEXT,
    decided_at REAL
);
INSERT INTO "pokayoke_approvals" VALUES('ebcd39c4844d12c7a700f62922d1596dcc86ef06a8601e817ecc49357eee6253','ap-ebcd39c4844d12c7a700f629','close_account','close_account@1',X'7B22637573746F6D6572223A22432D31227D','run-1',1.79564739472188615795e+09,1.79573379472188615797e+09,'waiting','call',NULL,NULL,NULL);
CREATE TABLE pokayoke_audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    who TEXT NOT NULL,
    reason TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE TABLE pokayoke_counters (
    name TEXT PRIMARY KEY,
    calls BIGINT NOT NULL,
    amount REAL NOT NULL,
    touched_at REAL NOT NULL
);
CREATE TABLE pokayoke_meta (name VARCHAR(64) PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "pokayoke_meta" VALUES('ledger_id','ae4320f0-0c80-40c8-b338-cd84c3d1dadf');
INSERT INTO "pokayoke_meta" VALUES('schema_version','1');
CREATE TABLE pokayoke_rates (
    tool TEXT PRIMARY KEY,
    body TEXT NOT NULL
);
INSERT INTO "pokayoke_rates" VALUES('look_up','{"tool":"look_up","recent":[[1795647394.5567667,true],[1795647394.8992982,false]],"streak":1}');
INSERT INTO "pokayoke_rates" VALUES('pay','{"tool":"pay","recent":[[1795647394.5567667,true]],"streak":0}');
CREATE TABLE pokayoke_records (
    key TEXT PRIMARY KEY,
    args_hash TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    claim_id TEXT NOT NULL,
    lease_until REAL NOT NULL,
    tool TEXT NOT NULL,
    contract TEXT NOT NULL,
    run_id TEXT NOT NULL,
    claimed_at REAL NOT NULL,
    owner TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    resolver TEXT NOT NULL,
    dead_since REAL,
    settled_at REAL,
    output_ok BIGINT NOT NULL,
    failure TEXT NOT NULL,
    reference TEXT NOT NULL,
    decided_by TEXT NOT NULL,
    compensates TEXT NOT NULL,
    output BLOB
);
INSERT INTO "pokayoke_records" VALUES('2ee9c007d632ff6621738aa80393f6a97b41ff92baa36c3565896ff84559f443','9fbb451d84f0774c7492da5f8a213a08fe5a94c5965596453903d24757107d27','completed',1,'0ace87a8d87e4958bb6f093d8b08a5fe-0-2',1.79564743366294646267e+09,'pay','pay@1','run-1',1.79564739366294646265e+09,'vm|a05a8147-14e2-4605-bf1d-ff4938c76bb7|pid:[4026531836]|2285|382095',0,'',NULL,1.79564739381717681883e+09,1,'','','','',X'7B2272656365697074223A22522D412D31222C22616D6F756E74223A357D');
INSERT INTO "pokayoke_records" VALUES('774ba324276a3f0c23e0c36afd1117aff25e8e55881537b44b6dc2a11f2a5e5e','a1520a0f625c95b74773fd1dadf49adf8c968db001e8f0d6a54a3e7dbf6ec516','in_doubt',1,'0ace87a8d87e4958bb6f093d8b08a5fe-1-1',1.79564743480602025983e+09,'pay','pay@1','run-2',1.79564739480602025985e+09,'vm|a05a8147-14e2-4605-bf1d-ff4938c76bb7|pid:[4026531836]|2285|382095',0,'',NULL,1.79564739481726503376e+09,1,'ConnectionError','','','',NULL);
CREATE TABLE pokayoke_runs (
    run_id TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    touched_at REAL NOT NULL
);
INSERT INTO "pokayoke_runs" VALUES('run-1','{"run_id":"run-1","mode":"normal","stop_reason":null,"taints":[],"step":6,"turn":1,"rounds":6,"calls":6,"tokens":253,"started":1795647393.3962047,"version":2,"loop":{"streak":0,"bad":0,"failing":[],"seen":[],"why":""},"versions":[],"tenant":null}',1.79564739477414059632e+09);
INSERT INTO "pokayoke_runs" VALUES('run-2','{"run_id":"run-2","mode":"normal","stop_reason":null,"taints":[{"tool":"look_up","identity":"ad38fe14b9397bc407e297417cea5b08b19be62648e0d1f79b15d3914fbc43b6","step":2,"reason":"wrong_type:/plan"}],"step":3,"turn":0,"rounds":3,"calls":3,"tokens":124,"started":1795647394.805635,"version":2,"loop":{"streak":0,"bad":0,"failing":[],"seen":[],"why":""},"versions":[],"tenant":null}',1.79564739495007181166e+09);
CREATE TABLE pokayoke_switches (
    scope TEXT PRIMARY KEY,
    body TEXT NOT NULL
);
CREATE INDEX pokayoke_records_state ON pokayoke_records (state) WHERE state <> 'completed';
CREATE INDEX pokayoke_records_tool ON pokayoke_records (tool);
CREATE INDEX pokayoke_records_run ON pokayoke_records (run_id);
CREATE INDEX pokayoke_records_claimed ON pokayoke_records (claimed_at);
CREATE INDEX pokayoke_records_settled ON pokayoke_records (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX pokayoke_approvals_id ON pokayoke_approvals (id);
CREATE INDEX pokayoke_approvals_status ON pokayoke_approvals (status);
DELETE FROM "sqlite_sequence";
COMMIT;