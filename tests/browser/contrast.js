// Texts of a page whose contrast with what lies behind them is below WCAG 2 AA: 4.5, or 3 for large letters.
() => {
  const pattern = /rgba?\(([\d.]+)[, ]+([\d.]+)[, ]+([\d.]+)(?:[,/ ]+([\d.]+))?\)|color\(srgb ([\d.]+) ([\d.]+) ([\d.]+)(?: \/ ([\d.]+))?\)/;
  const colour = (text) => {
    const found = pattern.exec(text);
    if (!found) return [0, 0, 0, 0];
    const numbers = found[1] === undefined
      ? [found[5] * 255, found[6] * 255, found[7] * 255, found[8] ?? 1]
      : [found[1], found[2], found[3], found[4] ?? 1];
    return numbers.map(Number);
  };
  const over = (front, back) => back.map((one, place) => place < 3 ? front[place] * front[3] + one * (1 - front[3]) : 1);
  // What lies behind an element, and how faded it is, follow from its parent's: each is worked out once.
  const known = new Map();
  const ground = (element) => {
    if (!element) return {back: [255, 255, 255, 1], opacity: 1};
    if (!known.has(element)) {
      const parent = ground(element.parentElement), style = getComputedStyle(element), own = colour(style.backgroundColor);
      known.set(element, {back: own[3] > 0 ? over(own, parent.back) : parent.back, opacity: parent.opacity * style.opacity});
    }
    return known.get(element);
  };
  const light = ([red, green, blue]) => [red, green, blue]
    .map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const complaints = {};
  const read = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || read.has(element) || element.closest('script, style, noscript, svg, .headerlink, .visually-hidden')) continue;
    read.add(element);
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const style = getComputedStyle(element), {back, opacity} = ground(element);
    const [red, green, blue, alpha] = colour(style.color);
    const front = over([red, green, blue, alpha * opacity], back);
    const [bright, dark] = [light(front), light(back)].sort((one, other) => other - one);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < least - 0.005) {
      const colours = `${style.color} on rgb(${back.slice(0, 3).map(Math.round)})`;
      complaints[colours] ??= `${ratio.toFixed(2)} ${colours}: ${element.className || element.tagName} '${text.slice(0, 40)}'`;
    }
  }
  return Object.values(complaints);
}
