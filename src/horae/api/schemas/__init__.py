"""The JSON shapes that several routes share; a shape that one route module alone uses is defined in that module."""
