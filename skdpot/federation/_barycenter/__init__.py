"""The coordinator of a federated barycenter: what it is told, its rounds, and what it finds."""
