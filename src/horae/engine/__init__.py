"""A node: its membership in the cluster, its background duties, its worker and the execution of attempts."""
