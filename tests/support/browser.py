"""A headless Chromium, driven by its debugging protocol over a pipe."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def runs(path):
    """Whether it is a browser, and no stand-in for a package that is not there."""
    return path is not None and subprocess.run([path, "--version"], capture_output=True).returncode == 0


PROGRAM = next(filter(runs, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser: `with Browser() as browser`."""

    def __enter__(self):
        self.profile = tempfile.mkdtemp()
        to_browser, self.out = os.pipe()
        self.answers, from_browser = os.pipe()
        command = [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
                   f"--user-data-dir={self.profile}", "about:blank"]
        # It reads the file descriptor 3 and writes to 4.
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command],
                                        pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.answer = os.fdopen(self.answers, "rb")
        self.number, self.session, self.rest, self.mistakes, self.requests = 0, None, b"", [], []
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(domain + ".enable")
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.answer.close()
        os.close(self.out)
        shutil.rmtree(self.profile, ignore_errors=True)

    def next(self):
        while b"\0" not in self.rest:
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        event = json.loads(text)
        if event.get("method") == "Runtime.exceptionThrown":
            self.mistakes.append(event["params"]["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.mistakes.append(event["params"]["entry"]["text"])
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        return event

    def ask(self, method, **parameters):
        self.number += 1
        question = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            question["sessionId"] = self.session
        text = json.dumps(question).encode() + b"\0"
        while text:
            text = text[os.write(self.out, text):]
        while (event := self.next()).get("id") != self.number:
            pass
        if "error" in event:
            raise RuntimeError(f"{method}: {event['error']}")
        return event["result"]

    def look(self, width, height=900, dark=False):
        """Sets the size of the page, and whether the reader likes dark ones."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, place):
        """Opens a file or an address, and returns once it is loaded."""
        url = Path(place).resolve().as_uri() if "://" not in str(place) else place
        self.mistakes, self.requests = [], []
        self.ask("Page.navigate", url=url)
        while self.next().get("method") != "Page.loadEventFired":
            pass
        self.frames()

    def run(self, script):
        """The value of an expression; a promise is awaited."""
        result = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description", "an exception"))
        return result["result"].get("value")

    def frames(self):
        """Waits until the page is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))")

    def mouse(self, kind, x, y, **more):
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, begin, end):
        self.mouse("mouseMoved", *begin)
        self.mouse("mousePressed", *begin, button="left", clickCount=1)
        self.mouse("mouseMoved", *end, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)
        self.frames()

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" and len(key) == 1 else "")
        self.frames()

    def picture(self, file):
        """Writes a PNG of the whole page."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        Path(file).write_bytes(base64.b64decode(data))
