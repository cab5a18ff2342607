"""An owner of rows: what it answers, what it refuses, and what it remembers."""
