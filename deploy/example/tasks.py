"""The tasks that the worker of `deploy/compose.yaml` runs; put yours in their place."""

from horae import Horae, Run, cron

app = Horae()


@app.task(max_retries=5, timeout=30)
def greet(run: Run, name: str) -> str:
    """Greet somebody."""
    run.log.info("greeting %s", name)
    return f"hello, {name}"


@app.schedule(cron("0 9 * * mon-fri", tz="Europe/Paris"))
async def morning_report() -> str:
    """Report on weekday mornings."""
    return "all good"
