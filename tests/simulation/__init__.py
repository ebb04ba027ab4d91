"""Simulates whole clusters in virtual time, each from one seed, with faults at named points.

A simulated life has three hosts or more. Each is the real node (planner, worker, janitor, heartbeat) with the real use
cases, on the real SQLite store in memory. `virtual` kills and freezes hosts between any two steps, `wire` loses, delays
and refuses calls and signals, `faults` draws the faults from the seed and `users` the requests, `recording` keeps the
history, and `judging` judges it and the store with `horae.proof.checking`.

    python -m tests.simulation --seed 17        one life, line by line: the same every time, in any process
    python -m tests.simulation --seeds 3000     many, with a report of the faults and crash points that were reached
"""
