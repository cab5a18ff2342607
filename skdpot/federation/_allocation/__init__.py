"""Allocations by messages: nodes, their coordinator, and an engine within a process."""
