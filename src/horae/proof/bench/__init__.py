"""`horae bench`: runs the real product under a chosen load and measures it by the starts that its handlers record."""
