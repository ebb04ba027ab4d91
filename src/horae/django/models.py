"""What the admin shows as jobs and runs: models without tables, which give the pages a place and permissions."""

from django.db import models


class HoraeJob(models.Model):
    """A job, with the permissions to see it, and to cancel it or run it now."""

    class Meta:
        """No table: jobs are in the store of Horae."""

        managed = False
        default_permissions = ("view", "change")
        verbose_name = "job"
        verbose_name_plural = "jobs"


class HoraeRun(models.Model):
    """A run, with the permissions to see it and to cancel it."""

    class Meta:
        """No table: runs are in the store of Horae."""

        managed = False
        default_permissions = ("view", "change")
        verbose_name = "run"
        verbose_name_plural = "runs"
