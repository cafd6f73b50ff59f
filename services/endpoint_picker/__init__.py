"""Tier 1, one per cluster: watches the pods, speaks for the cluster, and picks the pod for each request."""
