"""Pictures of a report's page for the README: desk in light and dark, and a phone.

python scripts/screenshots.py results/cpu/table1-mnist-0.1 pictures

`report.png` is the README's (docs/assets). The page prefers the fonts Inter and JetBrains Mono.
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

DESK = {"viewport": {"width": 1280, "height": 1180}}
PHONE = {"viewport": {"width": 375, "height": 812}, "device_scale_factor": 2, "is_mobile": True}
VIEWS = {
    "report": {**DESK, "color_scheme": "light"},
    "report-dark": {**DESK, "color_scheme": "dark"},
    "report-phone": {**PHONE, "color_scheme": "light"},
}


def main(report: Path, out: Path) -> None:
    """Photograph the first screen of `report`/index.html into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    path = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        for name, options in VIEWS.items():
            page = browser.new_page(**options)
            page.goto((report / "index.html").resolve().as_uri(), timeout=300_000)
            page.locator(".plot:not(.js-plotly-plot)").first.wait_for(state="detached")
            page.screenshot(path=out / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
