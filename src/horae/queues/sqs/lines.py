"""The SQS queues of one installation: created when a ticket needs them, found by their prefix by those who take."""

import asyncio
import json
from collections.abc import Callable, Mapping

from horae.aws_api.client import ServiceClient
from horae.aws_api.errors import RequestRefused, ResourceInUse, ResourceMissing
from horae.core.errors import Unavailable
from horae.core.values import Value
from horae.queues.sqs.names import PriorityClass, level_of, refused_name

RETENTION = 4 * 86_400  # seconds; a ticket is offered again long before
KEPT_REFUSED = 14 * 86_400  # seconds: as long as SQS allows
VISIBLE_AGAIN = 900  # seconds, for those who do not say: Lambda refuses less than the longest time of a function
MOST_TAKEN = 1000  # times that a message is taken before it is set aside
PAGE = 1000


class TicketLine(Value, frozen=True, kw_only=True):
    """One SQS queue with tickets."""

    name: str
    url: str
    level: PriorityClass


class TicketLines:
    """Which SQS queues there are."""

    def __init__(self, client: ServiceClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._known: dict[str, TicketLine] = {}
        self._creating: dict[str, asyncio.Task[TicketLine]] = {}
        self._when_new: list[Callable[[], None]] = []
        self.refused_url: str | None = None  # of refused messages, once it was found or created
        self._refused: tuple[str, str] | None = None  # the URL and the ARN of the queue of refused messages

    @property
    def known(self) -> Mapping[str, TicketLine]:
        """The SQS queues that are known here, by name."""
        return self._known

    def when_new(self, call: Callable[[], None]) -> None:
        """Call a function whenever further SQS queues are known."""
        self._when_new.append(call)

    def _tell(self) -> None:
        for call in self._when_new:
            call()

    async def find(self) -> None:
        """Look which SQS queues there are."""
        found: dict[str, TicketLine] = {}
        page: str | None = None
        while True:
            more = {} if page is None else {"NextToken": page}
            body = {"QueueNamePrefix": f"{self._prefix}__", "MaxResults": PAGE, **more}
            answer = await self._client.call("ListQueues", body)
            for url in answer.get("QueueUrls") or ():
                name = url.rpartition("/")[2]
                if name == refused_name(self._prefix):
                    self.refused_url = url
                elif (level := level_of(name)) is not None:
                    found[name] = TicketLine(name=name, url=url, level=level)
            page = answer.get("NextToken")
            if page is None:
                break
        is_new = not found.keys() <= self._known.keys()
        self._known = {**self._known, **found}  # a list may lag behind what was just created
        if is_new:
            self._tell()

    async def need(self, name: str, level: PriorityClass) -> TicketLine:
        """Return an SQS queue, which is created if it is not known."""
        line = self._known.get(name)
        if line is not None:
            return line
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.create_task(self._create(name, level), name=f"create {name}")
            task.add_done_callback(lambda _: self._creating.pop(name, None))
        return await asyncio.shield(task)

    async def url_of(self, name: str) -> str:
        """Return the URL of an SQS queue that exists."""
        line = self._known.get(name)
        if line is not None:
            return line.url
        return str((await self._client.call("GetQueueUrl", {"QueueName": name}))["QueueUrl"])

    def forget(self, line: TicketLine) -> None:
        """Note that an SQS queue is gone; the one of refused messages may be, too."""
        self._refused = None
        if self._known.get(line.name) is line:  # else it was created again meanwhile
            del self._known[line.name]

    async def refused(self) -> tuple[str, str]:
        """Return URL and ARN of the queue of refused messages, which is created if it is not known."""
        if self._refused is None:
            attributes = {"MessageRetentionPeriod": str(KEPT_REFUSED)}
            url = await self._create_queue(refused_name(self._prefix), attributes)
            self.refused_url = url
            answer = await self._client.call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["QueueArn"]})
            self._refused = url, str(answer["Attributes"]["QueueArn"])
        return self._refused

    async def _create(self, name: str, level: PriorityClass) -> TicketLine:
        try:
            line = await self._created(name, level)
        except RequestRefused:
            if self._refused is None:
                raise
            self._refused = None  # SQS refuses the name of a queue of refused messages that somebody has deleted
            line = await self._created(name, level)
        self._known[name] = line
        self._tell()
        return line

    async def _created(self, name: str, level: PriorityClass) -> TicketLine:
        _, arn = await self.refused()
        attributes = {
            "MessageRetentionPeriod": str(RETENTION),
            "VisibilityTimeout": str(VISIBLE_AGAIN),
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": MOST_TAKEN}),
        }
        return TicketLine(name=name, url=await self._create_queue(name, attributes), level=level)

    async def _create_queue(self, name: str, attributes: Mapping[str, str]) -> str:
        """Create an SQS queue, or find the one that is there with other attributes, which its administrator may set."""
        try:
            return str(
                (await self._client.call("CreateQueue", {"QueueName": name, "Attributes": attributes}))["QueueUrl"]
            )
        except ResourceInUse as exc:
            try:
                return str((await self._client.call("GetQueueUrl", {"QueueName": name}))["QueueUrl"])
            except ResourceMissing:  # it was deleted within the last minute
                raise Unavailable(str(exc)) from exc
