"""The training engine: all that needs PyTorch, imported in fits only."""
