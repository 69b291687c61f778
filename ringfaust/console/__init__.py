"""The web console: see and steer the queues of an application.

It reads the status topic and asks the workers through `ringfaust.client`; it never runs the engine.
"""

from ringfaust.console.access import BadToken, read_token
from ringfaust.console.app import attach_console, console_app
from ringfaust.console.context import ConsoleOptions

__all__ = ["BadToken", "ConsoleOptions", "attach_console", "console_app", "read_token"]
