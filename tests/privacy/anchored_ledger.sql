PRAGMA application_id = 1936417904;
PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
CREATE TABLE records (
    number INTEGER PRIMARY KEY CHECK (number >= 0),
    body TEXT NOT NULL,
    digest TEXT NOT NULL
);
INSERT INTO "records" VALUES(0,'{"allow_seeded": false, "delta": 0.0, "epsilon": 2.0, "format": 1, "identity": "869e6bf285d020336acc83dcd5349b29", "kind": "ledger", "neighbouring": "replace_one", "slack": null}','e1b816d1014a393b9cada10cf85342f8d716e73091894b733774e0556b3fb427');
INSERT INTO "records" VALUES(1,'{"kind": "anchor", "knew": null, "nonce": "86bb5bf6b27257c5", "reason": null, "time": "2026-11-28T14:35:22.946+00:00"}','c231bdb608114c7c25348849906b85aa0405a90d97d37b545d1867a413710da6');
INSERT INTO "records" VALUES(2,'{"event": "{\"PureDpEvent\": {\"epsilon\": 0.5}}", "kind": "charge", "label": "a mean", "nonce": "618b538009cbb408", "pair": [0.5, 0.0], "part": null, "partition": null, "seeded": false, "time": "2026-11-28T14:35:22.948+00:00", "unit": "record"}','94b9f6ac21ed7d20c0b94c3b05c5c7cc63b454d512eccb7a1c9a05f0ace4a1aa');
INSERT INTO "records" VALUES(3,'{"kind": "anchor", "knew": null, "nonce": "ada514440d03a9f8", "reason": "the disk of the anchor broke", "time": "2026-11-28T14:35:22.950+00:00"}','5c307fdeb0357544957e7f99d89c007ced3d9fdefef9dd8fac6fb4734dbe0c85');
INSERT INTO "records" VALUES(4,'{"event": "{\"PureDpEvent\": {\"epsilon\": 0.25}}", "kind": "charge", "label": "a sample", "nonce": "7b0dce352eff0844", "pair": [0.25, 0.0], "part": null, "partition": null, "seeded": false, "time": "2026-11-28T14:35:22.952+00:00", "unit": "user"}','f49a71fec78d01bdddc9755a6337e085147d923a4baf09dce4360b85b25aa8d1');
CREATE TRIGGER records_are_not_changed BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
CREATE TRIGGER records_are_not_deleted BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
COMMIT;
