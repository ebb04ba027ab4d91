"""The web server: the API of the shop, and a whole node of Horae inside. Start it with `uvicorn webshop.api:api`."""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from webshop.database import Order, Receipt, database
from webshop.tasks import app, send_receipt

horae = app.asgi(roles=("api", "planner", "worker"))  # the node starts and stops with the server, and the pool with it
api = FastAPI(lifespan=horae.lifespan)
api.mount("/horae", horae)


class NewOrder(BaseModel):
    """What a customer sends."""

    customer: str


@api.post("/orders", status_code=201)
async def create_order(new: NewOrder) -> dict[str, object]:
    """Create an order; the order and the job for its receipt are one transaction."""
    async with database.session.begin() as session:
        order = Order(customer=new.customer)
        session.add(order)
        await session.flush()
        handle = await send_receipt.using(tx=session).submit(order=order.id)
        if not new.customer:
            raise HTTPException(422, "an order needs a customer")  # neither the order nor the job exists
    return {"order": order.id, "job": handle.id}


@api.get("/orders/{order}/receipt")
async def read_receipt(order: int) -> dict[str, str]:
    """Return the receipt of an order, as soon as there is one."""
    async with database.session() as session:
        receipt = await session.get(Receipt, order)
    if receipt is None:
        raise HTTPException(404, "there is no receipt yet")
    return {"text": receipt.text}
