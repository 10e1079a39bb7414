"""How well the text of a page stands out from its ground."""

from __future__ import annotations

from tests.lab.browser import Page

_SCRIPT = """(() => {
  const luminance = color => {
    const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  // Grounds that let others through lie on them.
  const ground = e => {
    const [r, g, b, a = 1] = getComputedStyle(e).backgroundColor.match(/[0-9.]+/g).map(Number);
    if (a === 1 || !e.parentElement) return [r, g, b];
    return ground(e.parentElement).map((below, i) => below + a * ([r, g, b][i] - below)) };
  const found = {};
  for (const e of document.querySelectorAll('SELECTORS')) {
    const style = getComputedStyle(e), color = e.ownerSVGElement ? style.fill : style.color;
    const ink = luminance(color), paper = luminance(`rgb(${ground(e)})`);
    const [high, low] = ink > paper ? [ink, paper] : [paper, ink];
    const what = [e.tagName, e.getAttribute('class') ?? '', color, paper].join(' ');
    found[what] = (high + 0.05) / (low + 0.05) }
  return found })()"""


def contrasts(page: Page, selectors: str) -> dict[str, float]:
    """By element, colour and ground, the ratio of luminances that WCAG asks for (AA: 4.5)."""
    found: dict[str, float] = page.evaluate(_SCRIPT.replace("SELECTORS", selectors))
    return found
