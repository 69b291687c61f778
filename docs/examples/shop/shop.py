from pydantic import BaseModel

from ringfaust.app import Context, RingApp

app = RingApp("shop", bootstrap_servers="127.0.0.1:9092")


class Order(BaseModel):
    item: str
    price: int


class BankIsAway(Exception):
    """The bank does not answer. Try again later."""


async def charge(order: Order) -> None:
    print(f"charged {order.price} for {order.item}")


@app.subscriber("orders", concurrency=8, retries={BankIsAway: 30_000})
async def handle(order: Order, context: Context) -> None:
    await charge(order)
    await context.send("invoices", {"for": order.item, "price": order.price})
