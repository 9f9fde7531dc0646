"""A headless browser for tests of the page, driven over the DevTools protocol."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from testbed.programs.install import Installer

Json = dict[str, Any]
START_SECONDS = 60
ANSWER_SECONDS = 60
_ACTIVE_PORT = "DevToolsActivePort"
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "Delete": 46, "/": 191}


class Browser:
    """A running browser; each tab has its own storage."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self.problems: dict[str, list[str]] = {}
        """The problems of each tab: exceptions and violations of the
        Content-Security-Policy.
        """
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, session: str = "", **parameters: Any) -> Json:
        """Send a command and return its result."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters} | (
            {"sessionId": session} if session else {}
        )
        await self._connection.send_json(message)
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await self._waiting[number]
        del self._waiting[number]
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    async def _read(self) -> None:
        async for message in self._connection:
            told = json.loads(message.data)
            if told.get("id") in self._waiting:
                self._waiting[told["id"]].set_result(told)
                continue
            problems = self.problems.setdefault(told.get("sessionId", ""), [])
            if told.get("method") == "Runtime.exceptionThrown":
                problems.append(json.dumps(told["params"]["exceptionDetails"]))
            if told.get("method") == "Log.entryAdded" and told["params"]["entry"][
                "source"
            ] in ("security", "javascript"):
                problems.append(json.dumps(told["params"]["entry"]))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    @asynccontextmanager
    async def tab(
        self, url: str, width: int = 1280, **features: str
    ) -> AsyncIterator["Tab"]:
        """Open a page in a new tab.

        `features` are media features, with `_` instead of `-`.
        """
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = (
            await self.call(
                "Target.createTarget", url="about:blank", browserContextId=context
            )
        )["targetId"]
        session = (
            await self.call("Target.attachToTarget", targetId=target, flatten=True)
        )["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log"):
            await tab.call(f"{domain}.enable")
        await tab.resize(width)
        media = [
            {"name": name.replace("_", "-"), "value": value}
            for name, value in features.items()
        ]
        await tab.call("Emulation.setEmulatedMedia", features=media)
        await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await tab.call("Page.navigate", url=url)
        try:
            yield tab
        finally:
            await self.call("Target.disposeBrowserContext", browserContextId=context)


class Tab:
    """An open page. Methods that search for text only see visible text."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    @property
    def problems(self) -> list[str]:
        """The problems that the browser reported for this tab."""
        return self._browser.problems.get(self._session, [])

    async def call(self, method: str, **parameters: Any) -> Json:
        return await self._browser.call(method, self._session, **parameters)

    async def value(self, expression: str) -> Any:
        """Evaluate an expression in the page, and await it if it is a promise."""
        found = await self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def ask_module(self, module: str, expression: str, *arguments: Any) -> Any:
        """Evaluate an expression with the exports of a module as `m` and arguments as
        `a`.
        """
        return await self.value(
            f"import('/ui/{module}').then((m) => "
            f"{{ const a = {json.dumps(arguments)}; return {expression}; }})"
        )

    async def text(self, selector: str = "body") -> str:
        return str(
            await self.value(
                f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"
            )
        )

    async def press(self, key: str, *, shift: bool = False) -> None:
        code = {
            "windowsVirtualKeyCode": _KEYS[key],
            "key": key,
            "code": key,
            "modifiers": 8 if shift else 0,
        }
        await self.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            **code,
            **({"text": "\r"} if key == "Enter" else {}),
        )
        await self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    async def type(self, text: str) -> None:
        """Type a text into the focused element."""
        await self.call("Input.insertText", text=text)

    async def focused(self) -> str:
        """Describe the focused element."""
        return str(
            await self.value(
                "(e => e.id || e.textContent.trim())(document.activeElement)"
            )
        )

    async def resize(self, width: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def screenshot(self, file: Path) -> None:
        """Save a screenshot of the whole page."""
        picture = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(picture["data"]))


@asynccontextmanager
async def a_browser(folder: Path) -> AsyncIterator[Browser]:
    """Start a browser that accepts test certificates; close it at the end of the block."""
    program = Installer(print).browser()
    # In containers the sandbox is not available. The browser opens only pages of this
    # project.
    command = [
        "--no-sandbox",
        "--headless",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--ignore-certificate-errors",
    ]
    log = (folder / "browser.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        program,
        *command,
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=log,
        stderr=log,
    )
    try:
        address = await _address(folder / _ACTIVE_PORT, process)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0) as connection,
        ):
            browser = Browser(connection)
            try:
                yield browser
            finally:
                await browser.close()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        log.close()


async def _address(file: Path, process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(START_SECONDS):
        while not file.exists() or len(lines := file.read_text().splitlines()) < 2:
            assert process.returncode is None, (file.parent / "browser.log").read_text()
            await asyncio.sleep(0.05)
    return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
