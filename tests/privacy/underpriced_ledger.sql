PRAGMA application_id = 1936417904;
PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
CREATE TABLE records (
    number INTEGER PRIMARY KEY CHECK (number >= 0),
    body TEXT NOT NULL,
    digest TEXT NOT NULL
);
INSERT INTO "records" VALUES(0,'{"allow_seeded": false, "delta": 1e-06, "epsilon": 1.0, "format": 1, "identity": "30e0762e83c596f2db996db8fb2ca223", "kind": "ledger", "neighbouring": "add_remove", "slack": null}','800411e95935ee0e5b7b0999236b48be6ff8f2ec6d4f1a81ba4d9acba3876559');
INSERT INTO "records" VALUES(1,'{"event": "{\"PoissonSampledDpEvent\": {\"event\": {\"ApproximateDpEvent\": {\"delta\": 0.5, \"epsilon\": 0.0}}, \"sampling_probability\": 0.5}}", "kind": "charge", "label": "survey", "pair": [0.0, 0.0], "part": null, "partition": null, "seeded": false, "time": "2026-11-28T13:50:27.809+00:00", "unit": "record"}','b462a7c76aeb237336ab5484abf34eb7fb8b8beb6d5980d09071680d74e20c16');
INSERT INTO "records" VALUES(2,'{"event": "{\"PureDpEvent\": {\"epsilon\": 0.25}}", "kind": "charge", "label": "mean", "pair": [0.25, 0.0], "part": null, "partition": null, "seeded": false, "time": "2026-11-28T13:50:27.832+00:00", "unit": "record"}','e4df7f41a5cea0d818d5c8ec5004621bb4b49a13b44a3da3a5e4b5f016890a66');
INSERT INTO "records" VALUES(3,'{"event": "{\"ComposedDpEvent\": {\"events\": [{\"PlannedDpEvent\": {\"delta\": 1e-07, \"event\": {\"GaussianDpEvent\": {\"noise_multiplier\": 10.0}}}}, {\"PoissonSampledDpEvent\": {\"event\": {\"ApproximateDpEvent\": {\"delta\": 1e-06, \"epsilon\": 0.0}}, \"sampling_probability\": 0.25}}]}}", "kind": "charge", "label": "training", "pair": [0.4470784241868516, 1e-07], "part": null, "partition": null, "seeded": false, "time": "2026-11-28T13:50:27.871+00:00", "unit": "user"}','89dbacf061df3bf6ba2d497932ee780f19e5a2364c00eea6b774ce5a95f314a4');
CREATE TRIGGER records_are_not_changed BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
CREATE TRIGGER records_are_not_deleted BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
COMMIT;
