"""How fast Horae is beside its peers and beside the bare stores, measured on one machine in one run: `make bench`."""
