"""How many runs a worker can start within a time, by how long the last attempts took."""

MOST_HELD = 20_000  # runs in the memory of one worker that wait for their instant
ASSUMED_SECONDS = 0.05  # that an attempt takes, while nothing is known
SHORTEST_SECONDS = 0.0001
WEIGHT = 0.05  # of the last attempt in the mean


class Capacity:
    """The mean duration of recent attempts."""

    def __init__(self) -> None:
        self.mean_seconds = ASSUMED_SECONDS

    def learn(self, seconds: float) -> None:
        """An attempt took so long."""
        lasted = seconds if seconds > SHORTEST_SECONDS else SHORTEST_SECONDS
        self.mean_seconds += WEIGHT * (lasted - self.mean_seconds)

    def startable(self, *, free: int, turning: int, within: float) -> int:
        """How many runs can be started within some seconds.

        A free slot serves one at least. A slot that is turning, because its attempt has just begun, serves those after
        that one; what has been running for longer is not expected to end.
        """
        turns = within / self.mean_seconds
        return min(int(free * max(turns, 1.0) + turning * max(turns - 1.0, 0.0)), MOST_HELD)
