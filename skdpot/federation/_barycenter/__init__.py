"""Federated barycenters: owners, their coordinator, and the release that they agree to."""
