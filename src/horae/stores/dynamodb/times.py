"""The clocks of this process, in one place, so that a simulation can have its own: call `times.steady()`."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

steady: Callable[[], float] = time.monotonic  # seconds, for how long something has been known
wall: Callable[[], datetime] = partial(datetime.now, UTC)  # by NTP; DynamoDB has no clock of its own
