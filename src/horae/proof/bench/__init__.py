"""`horae bench`: the real product under a chosen load, in scratch data, judged by what its handlers recorded."""
