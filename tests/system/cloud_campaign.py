"""Campaigns of faults against fleets with a queue in front of their store."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.engines.provisioned import fresh_dynamodb_local, fresh_elasticmq, fresh_redis
from tests.engines.separate_server import SeparateServer
from tests.engines.servers import fresh_ministack, fresh_valkey
from tests.system import cloud_faults
from tests.system.cloud_faults import CloudFault, Kind
from tests.system.cloud_fleet import AwsBackend, Backend, CloudFleet, PostgresBackend, RedisBackend, open_cloud_fleet
from tests.system.fault_campaign import CampaignResult, run_campaign

ROLES = ("api,planner", "planner,worker", "api,worker")  # three nodes, two of each role
SEED = 17
WORKER_SECONDS = 30.0  # until what a killed worker ran starts again
PATIENCE_SECONDS = 1_500.0  # for a hundred faults on a machine that is busy
TICKET_SECONDS = 45.0  # until a run starts whose ticket was lost

Fresh = Callable[[], AbstractContextManager[SeparateServer]]


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A store and a queue of one's own, and what may happen to them."""

    opened: Callable[[ExitStack], tuple[Backend, Backend]]
    kinds: Sequence[Kind]


def dynamodb_and_sqs(dynamodb: Fresh, sqs: Fresh, stack: ExitStack) -> tuple[Backend, Backend]:
    """DynamoDB and SQS behind proxies."""
    return (
        AwsBackend(stack, "dynamodb", stack.enter_context(dynamodb()), SEED),
        AwsBackend(stack, "sqs", stack.enter_context(sqs()), SEED),
    )


def postgres_and_redis(redis: Fresh, stack: ExitStack) -> tuple[Backend, Backend]:
    """PostgreSQL and Redis behind proxies."""
    return PostgresBackend(stack), RedisBackend(stack, stack.enter_context(redis()))


AWS_KINDS = (*cloud_faults.PROCESSES, *cloud_faults.QUEUES, *cloud_faults.DYNAMODB, *cloud_faults.SQS)
REDIS_KINDS = (*cloud_faults.PROCESSES, *cloud_faults.QUEUES, *cloud_faults.REDIS, *cloud_faults.POSTGRES)

WHEELS = {
    "dynamodb-sqs": Cloud(opened=partial(dynamodb_and_sqs, fresh_ministack, fresh_ministack), kinds=AWS_KINDS),
    "postgres-redis": Cloud(opened=partial(postgres_and_redis, fresh_valkey), kinds=REDIS_KINDS),
}
REAL = {
    "dynamodb-sqs": Cloud(opened=partial(dynamodb_and_sqs, fresh_dynamodb_local, fresh_elasticmq), kinds=AWS_KINDS),
    "postgres-redis": Cloud(opened=partial(postgres_and_redis, fresh_redis), kinds=REDIS_KINDS),
}


@dataclass
class CloudResult:
    """What came of a campaign."""

    campaign: CampaignResult
    latest: float = 0.0  # seconds that the latest run began after its time
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.campaign}; latest start {self.latest:.1f} s"


def run_cloud_campaign(
    cloud: Cloud,
    folder: Path,
    *,
    seconds: float,
    times: Callable[[object], int],
    per_second: float = 20,
    recurring: int = 5,
    report: Callable[[str], None] = lambda line: None,
    **settings: str,
) -> CloudResult:
    """Inject the faults of a cloud under load, and judge what became of every job."""
    fleets: list[CloudFleet] = []

    def opened(folder: Path, roles: Sequence[str], **settings: str) -> AbstractContextManager[CloudFleet]:
        return open_cloud_fleet(lambda stack: cloud.opened(stack), folder, roles, kept=fleets, **settings)

    campaign = run_campaign(
        folder,
        seconds=seconds,
        seed=SEED,
        per_second=per_second,
        recurring=recurring,
        kinds=cloud.kinds,
        roles=ROLES,
        times=times,
        opened=opened,
        report=report,
        patience=PATIENCE_SECONDS,
        **settings,
    )
    result = CloudResult(campaign, wrong=list(campaign.wrong))
    firsts: dict[str, float] = {}
    for start in fleets[0].cluster.effects.starts():
        firsts.setdefault(start.run, start.lateness)
    result.latest = max(firsts.values(), default=0.0)
    if result.latest > TICKET_SECONDS:
        late = max(firsts, key=lambda run: firsts[run])
        result.wrong.append(f"{late} began {result.latest:.1f} s late")
    if max(campaign.worker_recovery, default=0.0) > WORKER_SECONDS:
        result.wrong.append(f"what a killed worker ran began again after {max(campaign.worker_recovery):.1f} s")
    return result


def as_often_as_promised(fault: object) -> int:
    """Kills of each role ten times, losses of the queue five times, everything else three times."""
    if isinstance(fault, cloud_faults.KillRole):
        return 10
    if isinstance(fault, cloud_faults.EmptyQueue | cloud_faults.RestartQueue):
        return 5
    return 3


def once(fault: object) -> int:
    """A first look."""
    assert isinstance(fault, CloudFault)
    return 1
