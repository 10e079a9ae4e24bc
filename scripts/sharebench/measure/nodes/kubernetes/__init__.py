"""A node of a Kubernetes cluster, whose GPU reaches pods through NVIDIA's device plugin."""
