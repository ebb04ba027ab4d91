"""Measures Horae beside other job queues and beside the bare stores, on one machine in one run: `make bench`."""
