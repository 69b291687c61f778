"""Chromium without a window, for the tests of the console and of the documentation site.

It needs Debian's `chromium` and `chromium-driver`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
)
AXE = Path(__file__).parent / "axe" / "axe.min.js"
WAIT_S = 20
MODES = {"light": (1280, 900, "light"), "dark": (1280, 900, "dark"), "phone": (390, 844, "light")}


class Browser:
    """Chromium without a window."""

    def __init__(self) -> None:
        from selenium import webdriver  # noqa: PLC0415 - only where there is Chromium

        options = webdriver.ChromeOptions()
        assert CHROMIUM is not None
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=DRIVER)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.base = ""

    def look_like(self, mode: str) -> None:
        """Take on a size and a colour scheme."""
        width, height, scheme = MODES[mode]
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, path: str) -> None:
        self.driver.get(f"{self.base}{path}")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str = "main") -> str:
        return str(self.run(f"return document.querySelector('{selector}')?.innerText ?? ''"))

    def until(self, true: Callable[[], Any], what: str, seconds: float = WAIT_S) -> None:
        """Wait for a condition; what is read while a page changes is read again."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if true():
                    return
            except Exception as error:  # noqa: BLE001 - a stale element, or no page yet
                if time.monotonic() > deadline:
                    raise AssertionError(what) from error
            assert time.monotonic() < deadline, f"{what}: {self.text()}"
            time.sleep(0.05)

    def until_shown(self, text: str, selector: str = "main") -> None:
        self.until(lambda: text in self.text(selector), f"{text!r} is shown")

    def press(self, action: str, **fields: str) -> None:
        """Press the button of the form that does `action`, and confirm if asked."""
        inputs = "".join(f':has(input[name="{k}"][value="{v}"])' for k, v in fields.items())
        form = f'form[action="/console{action}"]{inputs}'
        asks = self.find_and_run(
            "const form = document.querySelector(arguments[0]), asks = 'confirm' in form.dataset;"
            "form.querySelector('button').click(); return asks",
            form,
        )
        if asks:
            self.one('#confirm button[value="yes"]').click()

    def find_and_run(self, script: str, *arguments: Any) -> Any:
        """Run a script as soon as it finds what it needs."""
        results: list[Any] = []

        def is_found() -> bool:
            results.append(self.run(script, *arguments))
            return True

        self.until(is_found, script)
        return results[-1]

    def faults(self) -> list[str]:
        """What axe finds that is serious."""
        self.run(AXE.read_text())
        found = self.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        return [
            f"{each['id']}: {each['nodes'][0]['html']} {each['nodes'][0].get('failureSummary')}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]

    def complaints(self) -> list[str]:
        """What the console of the browser says since the last call."""
        return [each["message"] for each in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]
