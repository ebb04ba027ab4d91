"""Example request bodies for the documentation; the tests send each of them."""

from collections.abc import Mapping
from typing import Any

EXAMPLES: Mapping[str, Mapping[str, Any]] = {  # public name of the type → title → body
    "JobRequest": {
        "now": {"task": "demo.echo", "params": {"message": "hello"}},
        "recurring": {
            "task": "demo.echo",
            "name": "morning report",
            "schedule": {"type": "cron", "expression": "0 9 * * mon-fri", "timezone": "Europe/Paris"},
            "labels": {"team": "billing"},
            "max_retries": 5,
        },
        "every five minutes": {"task": "demo.echo", "schedule": "every 5m", "overlap": "skip"},
    },
    "PatchRequest": {
        "another schedule": {"schedule": "every 10m"},
        "more urgent": {"priority": 10, "labels": {"team": None}},
    },
    "BatchRequest": {"two jobs": {"jobs": [{"task": "demo.echo"}, {"task": "demo.sleep", "params": {"seconds": 0.1}}]}},
    "ReplacementRequest": {
        "a whole job": {"task": "demo.echo", "schedule": "every 5m", "params": {"message": "again"}},
    },
    "BackfillRequest": {"one day": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}},
    "AgainRequest": {"unchanged": {}, "with other parameters": {"params": {"times": 0}}},
    "RequeueRequest": {
        "all of one's own": {"filter": {}},
        "those of one task, with other parameters": {"filter": {"task": "demo.fail"}, "params": {"times": 0}},
    },
    "JobBulkRequest": {
        "how many jobs of a queue there are to cancel": {
            "action": "cancel",
            "filter": {"queue": "mail"},
            "dry_run": True,
        },
        "pause what has a label": {"action": "pause", "filter": {"label": "team:billing"}},
    },
    "RunBulkRequest": {
        "cancel what waits in a queue": {"action": "cancel", "filter": {"queue": "mail", "status": "queued"}},
        "retry what failed of one task": {"action": "retry", "filter": {"task": "demo.fail"}},
    },
    "DiscardRequest": {"those of one task": {"filter": {"task": "demo.fail"}}},
    "QueueRequest": {"pause": {"paused": True}, "resume, ten at a time": {"paused": False, "concurrency": 10}},
    "RunRequest": {"unchanged": {}, "with another message": {"params": {"message": "by hand"}}},
    "ResumeRequest": {"skip missed slots": {}, "run the newest missed slot": {"missed": "once"}},
    "EmptyRequest": {"empty": {}},
    "RestoreRequest": {"one run": {"ids": ["run_019ca7358ed874ffab3c92510a22adbd"]}},
    "PreviewRequest": {
        "a cron expression": {"schedule": "0 9 * * mon-fri", "count": 3},
        "a calendar": {"schedule": {"type": "calendar", "hour": 9, "weekdays": ["mon"], "timezone": "Europe/Paris"}},
    },
}
LINES_EXAMPLE = '{"task": "demo.echo"}\n{"task": "demo.sleep", "params": {"seconds": 0.1}}\n'
