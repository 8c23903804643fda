"""Take the still of the README from the real screen: `python docs/still.py` writes docs/screen.svg
and prints the same screen as text."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.service.options import Options
from tui.app import Tensorstep
from tui.places import place_of

SIZE = (120, 34)


async def take() -> None:
    app = Tensorstep(Options(), place_of("2:weights:1,0,2"))
    async with app.run_test(size=SIZE) as pilot:
        while not app.walker.ready or app.table.current is None:
            await pilot.pause(0.05)
        await pilot.pause(0.2)
        Path(__file__).with_name("screen.svg").write_text(app.export_screenshot(title="tensorstep"))
        lines = app.screen._compositor.render_strips()
        print("\n".join(strip.text.rstrip() for strip in lines))


if __name__ == "__main__":
    asyncio.run(take())
