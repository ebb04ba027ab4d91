"""Shows that the guarantees of Horae hold: `checking` judges what happened, `bench` measures how fast it happened.

`checking` is `horae check`, and every test harness uses it too:

* `checking.store` judges the rows of a store. It reads only, in bounded memory, also while nodes are running.
* `checking.history` writes, reads and groups a recorded history: requests, handlers, faults and the final state.
* `checking.judges` judges a recorded history. It finds what no store can show: lost jobs, double starts, wrong clocks.
* `checking.findings` has what both report: a `Violation` with its `Code`, which belongs to one of the invariants I1 to
  I20 of docs/internals/checking.md.

To add a judge of recorded histories:

1. Add a `Code` to `findings` and map it to its invariant in `INVARIANTS`.
2. Write `judge_…(recording) -> Iterator[Violation]` in a module of `judges`, with its invariant in the docstring.
   Report only what cannot be true: calls without an answer, faults and clock errors (`Setup`) excuse much.
3. Add it to `JUDGES` in `history.verdict`.
4. Plant at least one violation for it in tests/proof/checking/history_mutants.py. One test fails for an invariant
   without any, another if a clean history is found guilty.

A judge of store rows is a function in `checking.store` that `judge.violations` and `checker.Checker` both call; its
violations are planted in tests/proof/checking/store_mutants.py.

`bench` is `horae bench`. It runs real planner and worker processes on a scratch store (`scratch`, `processes`), submits
a load (`load`, `progress`), lets each handler record its own start (`tasks`, `start_recorder`), compares the records
with the store (`verify`) and reports figures (`figures`, `costs`, `report`).

To add a mode to `horae bench`:

1. Add it to `Mode` in `bench.options`, with its defaults and the options that it rejects in `_amounts`.
2. Write a `Load` in `bench.load`, and return it from `make_load`. Its jobs are numbered, and `place` and `due_us` give
   the due time of each number.
3. If its runs are not one-shots, extend `verify` and `LoadMonitor._is_done`, which decide whether all of them ended.
4. Add it to the `--mode` of cli/commands/measure/bench.py and to docs/internals/benchmarking.md.
"""
