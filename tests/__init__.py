"""Tests. This file is for imports: a dependency installs another package of this name."""
