PRAGMA application_id = 1936417904;
PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
CREATE TABLE records (
    number INTEGER PRIMARY KEY CHECK (number >= 0),
    body TEXT NOT NULL,
    digest TEXT NOT NULL
);
INSERT INTO "records" VALUES(0,'{"allow_seeded": true, "delta": 1e-05, "epsilon": 4.0, "format": 1, "identity": "25b1ab61c187cb782e3590af600ed7ca", "kind": "ledger", "neighbouring": "replace_one", "slack": null}','002aa53e7ad825360010701d510bcb8bef29516e3628687e5e1b9df5bc3040ea');
INSERT INTO "records" VALUES(1,'{"event": "{\"PureDpEvent\": {\"epsilon\": 0.5}}", "kind": "charge", "label": "median", "pair": [0.5, 0.0], "part": null, "partition": null, "seeded": false, "time": "2026-11-23T02:05:40.779+00:00", "unit": "record"}','ae67b50e04dd96c9cb90c8982860507226f9873173f4e012ed039080b3069483');
INSERT INTO "records" VALUES(2,'{"event": "{\"PlannedDpEvent\": {\"delta\": 1e-06, \"event\": {\"SelfComposedDpEvent\": {\"count\": 50, \"event\": {\"PoissonSampledDpEvent\": {\"event\": {\"GaussianDpEvent\": {\"noise_multiplier\": 1.0}}, \"sampling_probability\": 0.02}}}}}}", "kind": "charge", "label": "training", "pair": [1.535238993293998, 1e-06], "part": null, "partition": null, "seeded": true, "time": "2026-11-23T02:05:41.042+00:00", "unit": "record"}','c7084ea271de3d1f3041cbb9772917742d8fa0bd21ce7492899254c7d39be1e8');
INSERT INTO "records" VALUES(3,'{"fixed_key": false, "kind": "partition", "name": "region", "parts": ["north", "south"]}','709a7d376ee75c7ad78a0d0647a7eb955161b9aa83adf70898823c5b1c87ac76');
INSERT INTO "records" VALUES(4,'{"event": "{\"ComposedDpEvent\": {\"events\": [{\"LaplaceDpEvent\": {\"noise_multiplier\": 4.0}}, {\"ApproximateDpEvent\": {\"delta\": 1e-07, \"epsilon\": 0.25}}]}}", "kind": "charge", "label": "counts", "pair": [0.5, 1e-07], "part": "north", "partition": "region", "seeded": false, "time": "2026-11-23T02:05:41.053+00:00", "unit": "user"}','026693a715285e2621559290f3fbd90c95cde15624bdcd82f5b06da53b84f9b3');
CREATE TRIGGER records_are_not_changed BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
CREATE TRIGGER records_are_not_deleted BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
COMMIT;
