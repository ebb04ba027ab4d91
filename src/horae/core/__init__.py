"""The rules of Horae: pure values and functions, standard library only."""
