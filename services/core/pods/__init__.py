"""Pods: the model servers of one cluster as their picker sees them (tier 1)."""
