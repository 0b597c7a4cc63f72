// Where local SGD beats mini-batch SGD by the bounds, as region.py has it.

const POINTS = 24;
const FIELD = { left: 76, top: 8, width: 396, height: 340 };
const axes = { x: document.getElementById("axis-x"), y: document.getElementById("axis-y") };
axes.x.value = "zeta";
axes.y.value = "L_h";

function axisValues(name, points) {
  let [low, high] = DATA.axes[name];
  if (name === "L_h") [low, high] = [low * state.values.L_g, high * state.values.L_g];
  const whole = CONTROLS[name].whole;
  const values = [];
  for (let k = 0; k < points; k++) {
    const exact = k === points - 1 ? high : low * Math.pow(high / low, k / (points - 1));
    const value = whole ? Math.round(exact) : exact;
    if (value !== values[values.length - 1]) values.push(value);
  }
  return values;
}

// The least total over the rates that the conditions admit; log-convex in gamma, so that golden sections find it.
function leastOf(theorem, version, v) {
  const formula = FORMULAS[theorem][version];
  const at = { ...v, gamma: 1, eta: 1 };
  const top = formula(at).gammaMax;
  const total = (share) => {
    at.gamma = share >= 1 ? top : top * Math.exp(55 * (share - 1));
    return sum(formula(at).terms);
  };
  const golden = (Math.sqrt(5) - 1) / 2;
  let left = 0, right = 1, one = right - golden, two = golden;
  let low = total(one), high = total(two);
  for (let k = 0; k < 48; k++) {
    if (low <= high) {
      [right, two, high] = [two, one, low];
      one = right - golden * (right - left);
      low = total(one);
    } else {
      [left, one, low] = [one, two, high];
      two = left + golden * (right - left);
      high = total(two);
    }
  }
  return Math.min(low, high, total(1));
}

// The least of several theorems that bound the same models.
function leastBound(contest, v) {
  return Math.min(...contest.map(([theorem, version]) => leastOf(theorem, version, v)));
}

// log(local/mini-batch): negative where local SGD is better.
function logRatio(values) {
  const { F, N, L_g, L_h, I, R, sigma, zeta } = values;
  const v = { F, N, L_g, L_h, I, R, sigma2: sigma * sigma, zeta2: zeta * zeta };
  if (I === 1) return 0;
  const other = leastBound(DATA.contest.minibatch, v);
  if (L_h === 0) return Math.log(leastBound(DATA.contest.equal, v) / other);
  // With L_h <= L_g no curvature is negative, so that kappa is at most 1, below which it does not matter.
  const rest = { L_tilde: L_g + L_h, L_h_rms: L_h, kappa: 1 };
  return Math.log(leastBound(DATA.contest.unequal, { ...v, ...rest }) / other);
}

function winner(ratio) {
  const edge = Math.log1p(DATA.tie);
  return ratio < -edge ? 1 : ratio > edge ? -1 : 0;
}

function computeMap(x, y, points) {
  const xs = axisValues(x, points), ys = axisValues(y, points);
  return { xs, ys, ratios: ys.map((b) => xs.map((a) => logRatio({ ...state.values, [x]: a, [y]: b }))) };
}

function whyNoMap() {
  const { F, L_g, L_h } = state.values;
  if (axes.x.value === axes.y.value) return "Choose two different axes.";
  if (!(F > 0 && Number.isFinite(F))) return "The map needs F above 0 and finite.";
  if (!(L_g > 0)) return "The map needs L_g above 0.";
  const free = axes.x.value === "L_h" || axes.y.value === "L_h";
  if (!free && L_h > L_g) return "The map needs L_h at most L_g, so that each worker’s objective is convex.";
  return Number.isFinite(state.values.zeta) ? "" : "The map needs a finite zeta.";
}

function draw(tag, attributes, text = "") {
  const element = document.createElementNS(field.namespaceURI, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.textContent = text;
  return element;
}

function place(name, values, value) {
  return Math.log(value / values[0]) / Math.log(values[values.length - 1] / values[0]);
}

function drawAxis(side, name, values) {
  const made = [];
  const { left, top, width, height } = FIELD;
  const marks = [0, Math.floor((values.length - 1) / 2), values.length - 1];
  for (const k of marks) {
    const share = (k + 0.5) / values.length;
    const at = side === "x"
      ? { x: left + share * width, y: top + height + 18, "text-anchor": k === 0 ? "start" : k === marks[2] ? "end" : "middle" }
      : { x: left - 8, y: top + height - share * height + 4, "text-anchor": "end" };
    made.push(draw("text", at, shown(Number(values[k].toPrecision(2)))));
  }
  const middle = side === "x" ? { x: left + width / 2, y: top + height + 42, "text-anchor": "middle", class: "axis" }
    : { x: 14, y: top + height / 2, "text-anchor": "middle", class: "axis", transform: `rotate(-90 14 ${top + height / 2})` };
  made.push(draw("text", middle, name));
  return made;
}

const field = document.getElementById("field");

function showMap() {
  const why = whyNoMap();
  const said = document.getElementById("map-said");
  field.replaceChildren();
  if (why) {
    said.textContent = why;
    return;
  }
  const x = axes.x.value, y = axes.y.value;
  const { xs, ys, ratios } = computeMap(x, y, POINTS);
  const { left, top, width, height } = FIELD;
  const wide = width / xs.length, high = height / ys.length;
  const won = { 1: 0, 0: 0, [-1]: 0 };
  const letters = { 1: ["local", "L"], 0: ["even", "="], [-1]: ["other", "M"] };
  ratios.forEach((row, j) => row.forEach((ratio, i) => {
    const who = winner(ratio);
    won[who] += 1;
    const box = { x: left + i * wide, y: top + height - (j + 1) * high };
    const cell = draw("rect", { ...box, width: wide + 0.4, height: high + 0.4, class: letters[who][0], "data-x": i, "data-y": j });
    cell.append(draw("title", {}, `${x} = ${shown(xs[i])}, ${y} = ${shown(ys[j])}: ${shown(Math.exp(ratio))}×`));
    field.append(cell);
    // A letter in every third cell tells the regions apart without colour.
    if (i % 3 === 1 && j % 3 === 1) {
      field.append(draw("text", { x: box.x + wide / 2, y: box.y + high / 2 + 3.5, "text-anchor": "middle",
        class: `letter ${letters[who][0]}` }, letters[who][1]));
    }
  }));
  field.append(...drawAxis("x", x, xs), ...drawAxis("y", y, ys));
  const here = { x: place(x, xs, state.values[x]), y: place(y, ys, state.values[y]) };
  if ([here.x, here.y].every((share) => share >= 0 && share <= 1)) {
    const middle = (share, count) => (share * (count - 1) + 0.5) / count;
    const at = { cx: left + middle(here.x, xs.length) * width, cy: top + height - middle(here.y, ys.length) * height };
    field.append(draw("circle", { ...at, r: 7, class: "here" }), draw("circle", { ...at, r: 2, class: "dot" }));
  }
  const count = xs.length * ys.length;
  const now = state.values.L_h <= state.values.L_g ? logRatio(state.values) : NaN;
  const verdict = { 1: "local SGD’s bound is", 0: "the two tie: local SGD’s bound is", [-1]: "mini-batch SGD is better: local SGD’s bound is" };
  const own = Number.isNaN(now) ? "" : ` At these values ${verdict[winner(now)]} ${shown(Math.exp(now))} times mini-batch SGD’s.`;
  said.textContent = `Local SGD wins ${percent(won[1] / count)} of the map, mini-batch SGD ${percent(won[-1] / count)}.${own}`;
}

let asked = 0;

// The map takes a tenth of a second, so that it waits until the slider rests.
function askForMap() {
  clearTimeout(asked);
  asked = setTimeout(() => {
    showMap();
    announce();
  }, 120);
}

field.addEventListener("click", (event) => {
  const { x, y } = event.target.dataset;
  if (x === undefined) return;
  const round = (value) => Number(value.toPrecision(3));
  put(axes.x.value, round(axisValues(axes.x.value, POINTS)[x]));
  put(axes.y.value, round(axisValues(axes.y.value, POINTS)[y]));
  changed();
});
for (const axis of Object.values(axes)) axis.addEventListener("change", showMap);

for (const id of ["actions", "controls", "steps", "map"]) document.getElementById(id).hidden = false;
document.getElementById("still").hidden = true;
document.documentElement.classList.add("live");
restart();
follow(location.hash);
show();

// For the tests, which hold every number of the page against Python.
window.fedgauge = { state, computeMap, computeSteps, set(values, kinds = {}) { Object.assign(state.values, values); state.kinds = kinds; show(); } };
