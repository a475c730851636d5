"""The system's Chromium, cut off from every network but loopback, and a record of what it does there."""

import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
ACTION_MILLISECONDS = 90_000
"""Until a page is there and can be clicked. Swagger UI draws every route first: over 30 s on a machine that is
busy."""
MISSING = "THE PAGES WERE NOT TESTED IN A BROWSER: there is no chromium on the path"

REPORT_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def chromium_path() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Close it before anything else runs an event loop in this thread: Playwright keeps one running."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        yield browser
        browser.close()


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of `app` on loopback, in a thread."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Watch:
    """Everything that must stay empty, and every request."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def dialog(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()


def watched(context: BrowserContext) -> tuple[Page, Watch]:
    """A page that records console errors, uncaught exceptions, dialogs and requests."""
    watch = Watch()
    page = context.new_page()
    page.set_default_timeout(ACTION_MILLISECONDS)
    page.add_init_script(REPORT_VIOLATIONS)
    page.on("console", watch.console)
    page.on("pageerror", lambda error: watch.complaints.append(str(error)))
    page.on("dialog", watch.dialog)
    page.on("request", lambda request: watch.requests.append(request.url))
    return page, watch


def strangers(watch: Watch, origin: str) -> list[str]:
    """Requests that left `origin`."""
    return [url for url in watch.requests if not url.startswith((f"{origin}/", "data:"))]


def violations(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.violations")
    return found
