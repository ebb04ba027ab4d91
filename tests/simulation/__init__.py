"""Whole clusters in virtual time, each life from one seed, with faults at named points.

A life has three hosts or more. Each is the real node (planner, worker, janitor, heart) and the real use cases, on the
real SQLite store, which lies in memory. `virtual` kills and freezes hosts between any two steps, `wire` loses, delays
and refuses calls and signals, `faults` draws from the seed what breaks and when, `users` what is asked, `recording`
keeps the history of it, and `judging` has that and the store judged by `horae.proof.checking`, as any other.

    python -m tests.simulation --seed 17        one life, line by line: the same every time, in any process
    python -m tests.simulation --seeds 3000     many, with a report of the faults and crash points that were met
"""
