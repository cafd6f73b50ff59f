"""Tickets and instants as the admission tests write them."""

from services.core.admission.tickets import Drop, Effect, Stage, Ticket
from services.core.units import NS_PER_S, Duration, Instant

START = Instant(1_000 * NS_PER_S)


def at(second: float) -> Instant:
    return Instant(START + round(second * NS_PER_S))


def ticket(
    name: str = "r",
    *,
    flow: str = "acme",
    pool: str = "llama",
    priority: int = 0,
    received: float = 0,
    tokens: int = 1,
    size: int = 0,
    ttl: float | None = None,
    slo: float | None = None,
) -> Ticket:
    return Ticket(
        name,
        flow,
        pool,
        priority,
        at(received),
        tokens,
        size,
        None if ttl is None else Duration(round(ttl * NS_PER_S)),
        None if slo is None else Duration(round(slo * NS_PER_S)),
    )


def queued(sequence: int, name: str = "r", **fields: object) -> Ticket:
    """A ticket as the controller leaves it in a queue."""
    made = ticket(name, **fields)  # type: ignore[arg-type]  # Passed on as given; `ticket` checks the names.
    made.sequence = sequence
    made.stage = Stage.QUEUED
    made.deadline = at(60) if made.ttl is None else Instant(made.received_at + made.ttl)
    return made


def shown(effects: list[Effect]) -> list[str]:
    """Effects as `verb name` lines."""
    return [
        f"{type(effect).__name__.lower()} {effect.ticket.request_id}"
        + (f" {effect.cause.name}" if isinstance(effect, Drop) else "")
        for effect in effects
    ]
