// The bound of the chosen theorem, in its sharpest sound version, against the local steps, with the best I, the run's own I and the slider's.

const STEPS = { left: 84, top: 12, width: 620, height: 240 };
const stepsField = document.getElementById("steps-field");

function boundAt(I, v) {
  const found = FORMULAS[state.theorem][DATA.theorems[state.theorem].main]({ ...v, I });
  return { I, total: sum(found.terms), holds: found.conditions.every(([limit, value]) => value <= limit) };
}

// Whole numbers of local steps, evenly spread on a log axis.
function stepsTo(most) {
  const steps = [];
  const count = 120;
  for (let k = 0; k <= count; k++) {
    const I = Math.round(Math.pow(most, k / count));
    if (I !== steps[steps.length - 1]) steps.push(I);
  }
  return steps;
}

function lowest(points) {
  let best = null;
  for (const point of points) if (Number.isFinite(point.total) && (best === null || point.total < best.total)) best = point;
  return best;
}

// The I with the least bound among those whose conditions hold, to the last step; where none holds, among all.
function bestSteps(points, v) {
  const admitted = points.filter((point) => point.holds);
  const among = admitted.length ? admitted : points;
  const rough = lowest(among);
  if (rough === null) return null;
  const at = points.indexOf(rough);
  const near = [rough];
  const first = points[Math.max(at - 1, 0)].I, last = points[Math.min(at + 1, points.length - 1)].I;
  for (let I = first; I <= last && last - first <= 5000; I++) {
    const point = boundAt(I, v);
    if (point.holds || !admitted.length) near.push(point);
  }
  return lowest(near);
}

function computeSteps() {
  const v = spelled(state.values);
  const own = DATA.start.own.I;
  const top = Math.min(CONTROLS.I.most, Math.max(128, 8 * state.values.I, 8 * (own || 1)));
  const points = stepsTo(top).map((I) => boundAt(I, v));
  return { points, best: bestSteps(points, v), now: boundAt(state.values.I, v), run: own ? boundAt(own, v) : null };
}

// Round numbers for a log axis: decades, and where they are few, twice and five times as much too.
function logTicks(low, high) {
  const ticks = [];
  const fine = Math.log10(high / low) < 2.5;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const times of fine ? [1, 2, 5] : [1]) {
      const tick = Number((times * Math.pow(10, power)).toPrecision(1));
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  const every = Math.ceil(ticks.length / 8);
  return ticks.filter((_, k) => k % every === 0);
}

function stepsPath(points, x, y) {
  return points.map((point, k) => `${k ? "L" : "M"}${x(point.I).toFixed(2)} ${y(point.total).toFixed(2)}`).join("");
}

function stepsLegend(entries) {
  const list = document.getElementById("steps-legend");
  list.replaceChildren();
  for (const [kind, name, point] of entries) {
    const item = document.createElement("li");
    const key = document.createElement("i");
    key.className = `won ${kind}`;
    key.setAttribute("aria-hidden", "true");
    const fails = point.holds ? "" : ", a condition fails";
    item.append(key, `${name}: I = ${point.I}, bound ${shown(point.total)}${fails}`);
    item.dataset.mark = kind;
    item.dataset.steps = point.I;
    item.dataset.total = point.total;
    list.append(item);
  }
}

function showSteps() {
  const { points, best, now, run } = computeSteps();
  const said = document.getElementById("steps-said");
  stepsField.replaceChildren();
  stepsLegend([]);
  const drawn = points.filter((point) => Number.isFinite(point.total) && point.total > 0);
  if (best === null || !drawn.length) {
    said.textContent = "The bound is 0 or infinite for every number of local steps, so there is nothing to draw.";
    return;
  }
  const { left, top, width, height } = STEPS;
  const most = points[points.length - 1].I;
  const totals = drawn.map((point) => point.total);
  let low = Math.min(...totals), high = Math.max(...totals);
  [low, high] = high / low < 4 ? [low / 2, high * 2] : [low / 1.5, high * 1.5];
  const x = (I) => left + (width * Math.log(I)) / Math.log(most);
  const y = (total) => top + height * (1 - Math.log(total / low) / Math.log(high / low));
  for (const tick of logTicks(1, most)) {
    stepsField.append(draw("line", { x1: x(tick), x2: x(tick), y1: top, y2: top + height, class: "grid" }),
      draw("text", { x: x(tick), y: top + height + 22, "text-anchor": "middle" }, shown(tick)));
  }
  for (const tick of logTicks(low, high)) {
    stepsField.append(draw("line", { x1: left, x2: left + width, y1: y(tick), y2: y(tick), class: "grid" }),
      draw("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, shown(tick)));
  }
  stepsField.append(draw("text", { x: left + width / 2, y: top + height + 50, "text-anchor": "middle", class: "axis" },
    "I, local steps per round"));
  stepsField.append(draw("path", { d: stepsPath(drawn, x, y), class: "curve beyond" }));
  // The conditions that limit gamma by I hold up to some I and fail beyond.
  const held = drawn.filter((point) => point.holds);
  if (held.length) stepsField.append(draw("path", { d: stepsPath(held, x, y), class: "curve" }));
  const marks = [["here", "now", now], ["best", "best", best], ...(run ? [["run", "the run’s own", run]] : [])];
  for (const [kind, name, point] of marks) {
    if (!(Number.isFinite(point.total) && point.total > 0)) continue;
    const size = { here: 10, best: 7, run: 6 }[kind];
    const mark = kind === "run"
      ? draw("rect", { x: x(point.I) - size, y: y(point.total) - size, width: 2 * size, height: 2 * size, class: "mark run" })
      : draw("circle", { cx: x(point.I), cy: y(point.total), r: size, class: `mark ${kind}` });
    mark.append(draw("title", {}, `${name}: I = ${point.I}, bound ${shown(point.total)}`));
    stepsField.append(mark);
  }
  stepsLegend(marks);
  const times = now.total / best.total;
  const gain = times > 1.005 ? `; at I = ${now.I} it is ${shown(times)} times as large` : "";
  said.textContent = best.holds
    ? `With every other value as it is, the bound (${DATA.theorems[state.theorem].main}) is least at I = ${best.I}${gain}.`
    : "With every other value as it is, no number of local steps meets every condition; try a smaller gamma.";
}
