"""The real servers that adapters are tested against: wheels alone for `make test`, the others from `make engines`."""
