"""An app of handlers: functions that are called for each message. See docs/handlers.md."""

from ringfaust.app.app import RingApp
from ringfaust.app.context import CallNext, Context, Middleware
from ringfaust.app.health import Health, SubscriberHealth

__all__ = ["CallNext", "Context", "Health", "Middleware", "RingApp", "SubscriberHealth"]
