"""A node at work: its place in the cluster, its background duties, its worker."""
