"""An empty collection: this folder is run by hand."""

collect_ignore = ["faults.py", "run.py"]
