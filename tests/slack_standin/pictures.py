"""Take the pictures of the documentation: cards as the channel draws them, in the stand-in's page, by a browser.

python -m tests.slack_standin.pictures [--into docs/images] [NAME ...]

It needs Chromium (or Chrome) on PATH, and a font with emoji. Each picture is as wide as a message and as high as what
is in it. What it shows is in `scenes`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import trio

from intercom.operators.slack.web_api import SlackTokens, WebApi
from tests.slack_standin import ALICE, CHANNEL, Standin, scenes, serve
from tests.slack_standin.scenes import Scene

ROOT = Path(__file__).parents[2]
WIDTH = 720
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
#: The height of the window in which the height is measured, and the seconds a browser may take.
_ANY, _MINUTE = 800, 60


async def take(names: list[str], into: Path) -> None:
    """Take the pictures with these names, or all. Raises SystemExit when there is no browser, or no such picture."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(_BROWSERS)} is on PATH")
    if unknown := set(names) - set(scenes.SCENES):
        raise SystemExit(f"no picture is called {', '.join(sorted(unknown))}: there are {', '.join(scenes.SCENES)}")
    await trio.Path(into).mkdir(parents=True, exist_ok=True)
    async with serve() as slack, WebApi(SlackTokens(slack.app_token, slack.bot_token), base_url=slack.api_url) as web:
        for name in names or scenes.SCENES:
            file = into / f"slack-{name}.png"
            scene = scenes.SCENES[name]()
            await trio.to_thread.run_sync(_shoot, browser, await _address(slack, web, scene), file)
            slack.team.modals.clear()
            print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB", flush=True)


async def _address(slack: Standin, web: WebApi, scene: Scene) -> str:
    """Post what the scene shows; the address of a page with nothing else."""
    shown: list[str] = []
    for drawn in scene.messages:
        content = drawn.content()
        if scene.ephemeral:
            said = await web.call("chat.postEphemeral", channel=CHANNEL, user=ALICE, **content)
            shown.append(said["message_ts"])
        else:
            shown.append((await web.call("chat.postMessage", channel=CHANNEL, **content))["ts"])
    if scene.file is not None:
        shown.append(await _share(slack, web, scene, shown[0]))
    if scene.modal is not None:
        tapped = slack.tap(ALICE, shown.pop(), scene.modal[0])
        await web.call("views.open", trigger_id=tapped.payload["trigger_id"], view=scene.modal[1])
    theme = "dark" if scene.dark else "light"
    return f"{slack.url}/?still&files=open&user={ALICE}&theme={theme}&only={','.join(shown)}"


async def _share(slack: Standin, web: WebApi, scene: Scene, thread: str) -> str:
    file = scene.file
    assert file is not None
    data = file.text.encode()
    place = await web.call(
        "files.getUploadURLExternal", filename=file.filename, length=len(data), snippet_type=file.snippet_type
    )
    await web.upload(place["upload_url"], data, file.filename)
    files = [{"id": place["file_id"], "title": file.title}]
    await web.call("files.completeUploadExternal", files=files, channel_id=CHANNEL, thread_ts=thread)
    return str(slack.thread(CHANNEL, thread)[-1]["ts"])


def _shoot(browser: str, address: str, file: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        run = partial(_run, browser, profile, address)
        found = re.search(r'data-height="(\d+)"', run(_ANY, "--dump-dom"))
        if found is None:
            raise SystemExit("the page was not drawn")
        run(int(found[1]), f"--screenshot={file}")


def _run(browser: str, profile: str, address: str, height: int, what: str) -> str:
    options = [
        "--headless",
        "--hide-scrollbars",
        "--no-first-run",
        # It draws our own page from this machine, in containers too, where it could not make a sandbox.
        "--no-sandbox",
        f"--user-data-dir={profile}",
        f"--window-size={WIDTH},{height}",
        "--virtual-time-budget=2000",
    ]
    done = subprocess.run(
        [browser, *options, what, address], capture_output=True, text=True, timeout=_MINUTE, check=True
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.slack_standin.pictures", description="Take the pictures of the docs."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the pictures, without slack- and .png; else all")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images", help="the directory to write into")
    args = parser.parse_args()
    trio.run(take, args.names, args.into)


if __name__ == "__main__":
    main()
