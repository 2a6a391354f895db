"""Accessibility of a page by axe: what breaks WCAG 2.2 at level AA."""

from __future__ import annotations

from pathlib import Path

from tests.console.browser.visit import Visit

SOURCE = Path(__file__).parents[3] / "console/node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
RUN = """
async (tags) => {
  const found = await axe.run(document, { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] });
  return found.violations.map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 160)}`);
}
"""


def violations(tab: Visit, *further: str) -> list[str]:
    """Return what axe finds on the page by its rules and `further` ones: rule and first element of each violation."""
    if not tab.page.evaluate("'axe' in window"):
        tab.page.evaluate(SOURCE.read_text(encoding="utf-8"))
    found: list[str] = tab.page.evaluate(RUN, [*RULES, *further])
    return found
