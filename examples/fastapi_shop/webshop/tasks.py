"""The tasks of the shop, and the hooks that open and close what they share."""

from sqlalchemy.dialects.postgresql import insert

from horae import Fatal, Horae, Run
from webshop.database import Order, Receipt, database

app = Horae()  # its store is HORAE_STORE: the PostgreSQL database that holds the tables of the shop, too


@app.on("worker_start")
async def open_pool() -> None:
    """Open the pool in each process that runs tasks."""
    await database.open(app.settings.store)


@app.on("worker_stop")
async def close_pool() -> None:
    """Close the pool after the last task has ended."""
    await database.close()


@app.on("task_failed")
def report(run: Run, error: BaseException) -> None:
    """Tell somebody; a real shop would call its error tracker."""
    run.log.warning("the error tracker knows", error=repr(error))


@app.task
async def send_receipt(order: int) -> str:
    """Write a receipt, once."""
    async with database.session.begin() as session:
        found = await session.get(Order, order)
        if found is None:
            raise Fatal(f"there is no order {order}")
        text = f"Thank you, {found.customer}!"
        await session.execute(insert(Receipt).values(order_id=order, text=text).on_conflict_do_nothing())
        return text
