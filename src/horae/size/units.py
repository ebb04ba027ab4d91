"""What Horae's verbs were measured to use: `tests/size/test_measured.py` measures them again and compares."""

from horae.core.values import Value


class VerbUnits(Value, frozen=True, kw_only=True):
    """What a verb of the DynamoDB store uses for one run."""

    sized: float = 0.0  # writes of the run itself: one unit for each KB that it has
    fixed: float = 0.0  # further write units: an index entry, a hint
    per_call: float = 0.0  # write units of a call, whatever it has: items of journals and of the event log
    reads: float = 0.0  # read units
    per_call_reads: float = 0.0
    requests_per_call: float = 0.0  # beside those for each 25 runs
    requests_per_25: float = 0.0


# The row, an index entry and a hint; for each call an entry of a journal, an event with its number, and a signal.
CREATE = VerbUnits(sized=1, fixed=2.05, per_call=3.95, requests_per_25=4.3, requests_per_call=1.1)
CLAIM = VerbUnits(sized=1, reads=1, per_call_reads=2, requests_per_25=1.4, requests_per_call=2.6)
START = VerbUnits(sized=1, requests_per_25=1.2)  # unless the run ends within START_SECONDS
SETTLE = VerbUnits(sized=1, fixed=0.07, per_call=2.93, requests_per_25=1.4, requests_per_call=2.6)
# Of a job every 10 s or more seldom: the job, its hint for planners, row, two index entries, hint, journal. At most.
FIRE = VerbUnits(sized=1, fixed=6, requests_per_call=4)


START_SECONDS = 0.1  # starts are written in groups of so long, or with the result
ROW_BYTES = 330  # of a plain one-shot without its parameters
INDEX_BYTES = 200  # of a run's entries in indexes, with what DynamoDB adds to each
ITEM_OVERHEAD = 100  # bytes that DynamoDB adds to each item it stores
HINT_BYTES = 250

IDLE_WRITES_NODE_HOUR = 1200.0  # of a node that has nothing to do: heartbeats
IDLE_READS_NODE_HOUR = 17_400.0  # and looking whether there is something

POSTGRES_CORES = 0.28  # of a cluster, whatever it does; measured by `horae bench`
POSTGRES_CORES_PER_1000 = 0.06  # for 1,000 runs a second more
POSTGRES_SHARE = 0.5  # of that the database's own
POSTGRES_MOST = 20_000.0  # runs a second on time on one database, as measured
POSTGRES_ROW_BYTES = 700
POSTGRES_CONNECTIONS = 12  # of a process
DYNAMODB_CORES_PER_1000 = 0.3  # of Horae's processes
PROCESS_RUNS = 10_000.0  # runs a second that one worker process starts on time on PostgreSQL
DYNAMODB_PROCESS_RUNS = 2_500.0
