// Show the values under the pointer. All numbers come from the page's data; pictures and tables are made from it too.
const DATA = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;

function build(tag, attributes, text) {
  const drawn = ["circle", "path", "rect"].includes(tag);
  const made = drawn ? document.createElementNS(document.querySelector("svg").namespaceURI, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const read = (number) => (number === null ? NaN : Number(number));

function place(scale, number) {
  const bend = scale.log ? Math.log : (x) => x;
  return scale.start + (bend(number) - bend(scale.low)) / (bend(scale.high) - bend(scale.low)) * (scale.end - scale.start);
}

function nearest(scale, places, at) {
  let best = 0;
  for (let i = 1; i < places.length; i++) {
    if (Math.abs(place(scale, places[i]) - at) < Math.abs(place(scale, places[best]) - at)) best = i;
  }
  return best;
}

// What each kind of chart shows for a point: a title, rows with a name and a number, and the marks to draw there.
const LOOK = {
  lines(chart, x, y, svg, isShown) {
    const drawn = chart.series.filter((series) => series.x.length && isShown(series.group));
    if (!drawn.length) return null;
    // All series are read at the same x: the one nearest to the pointer.
    const places = drawn.map((series) => series.x[nearest(chart.x, series.x, x)]);
    const at = places[nearest(chart.x, places, x)];
    const scale = chart.y[svg.classList.contains("log") ? "log" : "linear"] || chart.y.linear;
    const rows = [], marks = [], named = new Set();
    for (const series of drawn) {
      const i = nearest(chart.x, series.x, place(chart.x, at));
      // Skip a line that has no point near this x, because it has ended or is too coarse.
      if (Math.abs(place(chart.x, series.x[i]) - place(chart.x, at)) > 6) continue;
      const value = read(series.y[i]);
      if (Number.isFinite(value) && (value > 0 || !scale.log)) {
        marks.push(["circle", {cx: place(chart.x, series.x[i]), cy: place(scale, value), r: 4, class: "t" + series.colour}]);
      }
      if (named.has(series.name)) continue;
      named.add(series.name);
      const band = series.low ? ` (${shown(read(series.low[i]))} to ${shown(read(series.high[i]))})` : "";
      rows.push({name: series.name, text: shown(value) + band, value, colour: series.colour});
    }
    marks.unshift(["path", {d: `M${place(chart.x, at)} ${scale.start}V${scale.end}`}]);
    return {title: `${chart.label} ${shown(at)}`, rows, marks};
  },
  stacked(chart, x) {
    const i = nearest(chart.x, chart.series[0].x, x), at = chart.series[0].x[i];
    const rows = chart.series.map((series) => {
      const value = read(series.y[i]);
      return {name: series.name, text: `${shown(value)}, ${percent(series.share[i])}`, value, colour: series.colour};
    });
    const line = ["path", {d: `M${place(chart.x, at)} ${chart.edges[0]}V${chart.edges[1]}`}];
    return {title: `${chart.label} ${shown(at)}`, rows: rows.reverse(), marks: [line]};
  },
  points(chart, x, y, svg, isShown) {
    let best = null, near = 900;
    for (const point of chart.points) {
      const far = (point.x - x) ** 2 / 9 + (point.y - y) ** 2;
      if (isShown(point.group) && far < near) [best, near] = [point, far];
    }
    if (!best) return null;
    const value = read(best.value), low = read(best.low), high = read(best.high);
    const rows = [{name: best.said, text: shown(value), value}];
    if (low !== high) rows.push({name: "interval", text: `${shown(low)} to ${Number.isNaN(high) ? "∞" : shown(high)}`, value: low});
    return {title: best.title, rows, marks: [["circle", {cx: best.x, cy: best.y, r: 6, class: "t7"}]]};
  },
  cells(chart, x, y) {
    const i = Math.floor((y - chart.top) / chart.height), j = Math.floor((x - chart.left) / chart.width);
    if (!(i in chart.rows) || !(j in chart.columns)) return null;
    const value = chart.values[i][j];
    const box = {x: chart.left + j * chart.width, y: chart.top + i * chart.height, width: chart.width, height: chart.height};
    const row = {name: `${chart.row} ${chart.rows[i]}`, text: chart.share ? percent(value) : shown(value), value};
    return {title: `${chart.column} ${chart.columns[j]}`, rows: [row], marks: [["rect", box]]};
  },
};

for (const [name, chart] of Object.entries(DATA.charts)) {
  const figure = document.getElementById("chart-" + name), tip = figure.querySelector(".tip");
  const isShown = (group) => figure.querySelector(`[data-series="${group}"]`)?.checked !== false;
  const leave = () => {
    tip.hidden = true;
    for (const group of figure.querySelectorAll(".pointer")) group.replaceChildren();
  };
  for (const svg of figure.querySelectorAll("svg")) {
    const point = (event) => {
      const box = svg.getBoundingClientRect(), unit = box.width / svg.viewBox.baseVal.width;
      const x = (event.clientX - box.left) / unit, y = (event.clientY - box.top) / unit;
      const found = LOOK[chart.kind](chart, x, y, svg, isShown);
      if (!found) return leave();
      svg.querySelector(".pointer").replaceChildren(...found.marks.map(([tag, attributes]) => build(tag, attributes)));
      const rows = found.rows.map((row) => {
        const line = build("div");
        if (row.colour !== undefined) line.append(build("i", {class: "key t" + row.colour}));
        line.append(build("span", {}, row.name), build("data", {value: row.value}, row.text));
        return line;
      });
      tip.replaceChildren(build("b", {}, found.title), ...rows);
      tip.hidden = false;
      // Put the tip beside the pointer, on the side where there is room.
      const left = x * unit > box.width / 2 ? x * unit - tip.offsetWidth - 14 : x * unit + 14;
      tip.style.left = Math.max(0, Math.min(left, box.width - tip.offsetWidth)) + "px";
      tip.style.top = Math.max(0, Math.min(y * unit - 20, box.height - tip.offsetHeight)) + "px";
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", leave);
  }
  figure.addEventListener("change", leave);
}

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
