"""What a load needs and what it costs a month, with the arithmetic: pure functions of values, behind `horae size`."""
