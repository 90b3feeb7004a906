"""A headless Chromium, told what to do over a pipe: in its own protocol, with no package for that."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
SECONDS = 60
"""After which a browser that says nothing is given up."""


class Browser:
    """`with Browser() as browser:` one tab; `problems` is all that a person would see in its console."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="musegnn-chromium-", ignore_cleanup_errors=True)
        here, there = os.pipe(), os.pipe()
        for end in (here[0], there[1]):
            os.set_inheritable(end, True)
        flags = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars"]
        flags += ["--no-first-run", "--disable-extensions", f"--user-data-dir={self.folder.name}"]
        # Its sandbox refuses root, and it opens nothing but our own pages here.
        flags += ["--no-sandbox", "--disable-dev-shm-usage", "about:blank"]
        # Chromium reads from 3 and writes to 4.
        link = f"exec {CHROMIUM} {' '.join(flags)} 3<&{here[0]} 4>&{there[1]}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(["bash", "-c", link], pass_fds=(here[0], there[1]), **quiet)
        os.close(here[0])
        os.close(there[1])
        self.writing, self.reading, self.rest = here[1], there[0], b""
        os.set_blocking(self.reading, False)
        self.number, self.session, self.events, self.problems = 0, None, [], []
        tabs = self.ask("Target.getTargets")["targetInfos"]
        tab = next(one["targetId"] for one in tabs if one["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{part}.enable")
        return self

    def __exit__(self, *error):
        # Told to end, it ends its children, too.
        self.session = None
        try:
            self.ask("Browser.close")
            self.process.wait(timeout=10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.writing)
        os.close(self.reading)
        self.folder.cleanup()

    def ask(self, method, **params):
        """One command, and its answer; what happens meanwhile is noted."""
        self.number += 1
        wanted = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            wanted["sessionId"] = self.session
        os.write(self.writing, json.dumps(wanted).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    def open(self, path):
        """Load a file, and wait until it is drawn."""
        del self.events[:], self.problems[:]
        self.ask("Page.navigate", url=path.absolute().as_uri())
        while "Page.loadEventFired" not in self.events:
            self._next()
        self.settle()

    def settle(self):
        """Wait until the page has heard of what happened, and is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, code):
        """The value of an expression in the page."""
        how = {"returnByValue": True, "awaitPromise": True}
        found = self.ask("Runtime.evaluate", expression=code, **how)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def click(self, selector):
        """A click of the mouse into the middle of an element."""
        box = f"(e => (e.scrollIntoView({{block: 'center'}}), e.getBoundingClientRect()))({_find(selector)})"
        x, y = self.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            how = {"button": "left", "clickCount": 1}
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **how)

    def prefer(self, scheme):
        """The color scheme of the system."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.settle()

    def resize(self, width, height, *, is_phone=False):
        how = {"deviceScaleFactor": 1, "mobile": is_phone}
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, **how)

    def screenshot(self, path):
        """All of the page, from top to bottom."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def print(self):
        """The page as PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def _next(self):
        message = self._read()
        method, params = message.get("method"), message.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(params["entry"]))
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:")):
                self.problems.append(f"asks the network for {url}")
        return message

    def _read(self):
        until = time.monotonic() + SECONDS
        while b"\0" not in self.rest:
            try:
                piece = os.read(self.reading, 1 << 20)
                assert piece, "Chromium has ended"
                self.rest += piece
            except BlockingIOError:
                assert time.monotonic() < until, "Chromium says nothing"
                time.sleep(0.005)
        line, _, self.rest = self.rest.partition(b"\0")
        return json.loads(line)


def _find(selector):
    return f"document.querySelector({json.dumps(selector)})"
