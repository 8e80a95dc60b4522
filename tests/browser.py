"""A real browser behind its driver, spoken to over HTTP as the W3C's WebDriver has it."""

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import contextmanager

import pytest


class Browser:
    """A page of a browser without a window; `call` is one command of WebDriver."""

    def __init__(self, address):
        self._address = address
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self.call("session", {"capabilities": {"alwaysMatch": options}})
        self._address += f"/session/{session['sessionId']}"

    def call(self, command, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self._address}/{command}".rstrip("/"), data, method=method)
        with urllib.request.urlopen(asked, timeout=120) as reply:
            return json.load(reply)["value"]

    def devtools(self, command, **given):
        return self.call("goog/cdp/execute", {"cmd": command, "params": given})

    def run(self, script):
        return self.call("execute/sync", {"script": script, "args": []})

    def open(self, path, wide, dark=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=wide, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])
        self.call("url", {"url": f"file://{path}"})

    def wait(self, script):
        """Return what the script gives as soon as that is true."""
        until = time.monotonic() + 60
        while not (found := self.run(script)):
            assert time.monotonic() < until, f"never true: {script}"
            time.sleep(0.05)
        return found

    def press(self, keys):
        self.run("document.activeElement.scrollIntoView({block: 'center'})")
        keys = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def complaints(self):
        return [one["message"] for one in self.call("se/log", {"type": "browser"}) if one["level"] != "INFO"]

    def picture(self, path):
        size = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser():
    """Give a browser; skips where there is none: apt-get install chromium-driver."""
    if not (driver := shutil.which("chromedriver")):
        pytest.skip("needs chromium and its driver (Debian: chromium-driver)")
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        port = next(line.split()[-1].rstrip(".") for line in process.stdout if "started successfully" in line)
        page = Browser(f"http://127.0.0.1:{port}")
        try:
            yield page
        finally:
            page.call("", method="DELETE")
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()
