"""Check the built documentation with axe-core by the rules of WCAG 2.1 A and AA, on a phone, light and dark.

    make axe

The Makefile gets axe-core from npm. The ordinary tests check widths and contrast by a script of our own, without npm.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

from playwright.sync_api import sync_playwright

ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
RUN = """async () => {
  const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'];
  // Sphinx sets a signature of several lines as a list of definitions without terms.
  const rules = {'definition-list': {enabled: false}};
  const found = await axe.run(document, {runOnly: {type: 'tag', values: tags}, rules, resultTypes: ['violations']});
  return found.violations.map(each => [each.id, each.nodes.length, each.nodes[0].html.slice(0, 160)]);
}"""


def main(site: Path, axe: Path) -> int:
    """Print each rule that pages break, with the first example; the exit status says whether there is one."""
    broken: Counter[str] = Counter()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS.split())
        page = browser.new_page(viewport={"width": 390, "height": 844})
        pages = sorted(site.rglob("*.html"))
        for path in pages:
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.goto(path.as_uri())
                page.add_script_tag(path=axe)
                for rule, number, example in page.evaluate(RUN):
                    if not broken[rule]:
                        print(f"{rule}, first on {path.relative_to(site)} ({scheme}): {example}")
                    broken[rule] += number
        browser.close()
    print(
        f"{len(pages)} pages: " + (", ".join(f"{rule} {number}" for rule, number in broken.items()) or "nothing found")
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2])))
