"""Limits on the fields of a job, the same for REST and Python."""

from typing import Annotated

from msgspec import Meta

MAX_LABELS = 50
MIN_PRIORITY, MAX_PRIORITY = -100, 100
MAX_RETRY_FACTOR = 1000
MONTH, DECADE = 30 * 86_400, 3653 * 86_400  # seconds

Task = Annotated[str, Meta(min_length=1, max_length=200)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Key = Annotated[str, Meta(min_length=1, max_length=200)]
LabelName = Annotated[str, Meta(min_length=1, max_length=100)]
LabelValue = Annotated[str, Meta(max_length=200)]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=MAX_LABELS)]
Queue = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}$(?!\n)", description="1 to 100 letters, digits and any of . _ -")
]
Priority = Annotated[int, Meta(ge=MIN_PRIORITY, le=MAX_PRIORITY)]
MaxRetries = Annotated[int, Meta(ge=0, le=1000)]
RetryDelay = Annotated[float, Meta(ge=0, le=MONTH)]
RetryFactor = Annotated[float, Meta(ge=1, le=MAX_RETRY_FACTOR)]
Timeout = Annotated[float, Meta(gt=0, le=MONTH)]
Duration = Annotated[float, Meta(ge=0, le=DECADE)]
