"""The tables of the shop, and the connection pool that requests and tasks share."""

from sqlalchemy import ForeignKey
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

POOL_SIZE = 5


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """What a customer wants."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


class Receipt(Base):
    """What a customer gets; one for each order, however often its task runs."""

    __tablename__ = "receipts"

    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id), primary_key=True)
    text: Mapped[str]


class Database:
    """The connection pool, which is open while the server or worker runs."""

    session: async_sessionmaker[AsyncSession]

    async def open(self, url: str) -> None:
        """Open the pool, and create the tables where they are missing."""
        self._engine = create_async_engine(
            url.replace("postgresql://", "postgresql+asyncpg://", 1),
            pool_size=POOL_SIZE,
            max_overflow=0,
            pool_pre_ping=True,  # a connection that was cut by a restart of the database is replaced before it is used
            connect_args={"server_settings": {"application_name": "webshop"}},
        )
        self.session = async_sessionmaker(self._engine, expire_on_commit=False)
        async with self._engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()


database = Database()
