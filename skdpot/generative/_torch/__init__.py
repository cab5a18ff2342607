"""Whatever needs PyTorch, imported inside of fits only."""
