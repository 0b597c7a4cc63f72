// The page: sliders and boxes in, numbers out. Whatever comes from a file goes in as text, never as markup.

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const part = (root, name) => root.querySelector(`[data-part="${name}"]`);
const parts = (root, name) => all(`[data-part="${name}"]`, root);

function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function write(element, value) {
  const text = String(value);
  if (element.value === text) return;
  element.value = text;
  element.textContent = shown(value);
}

// The steps of a slider: round numbers, evenly spread, each once.
function ladder({ low, high, log, zero, whole }) {
  const steps = zero ? [0] : [];
  const count = log ? Math.round(40 * Math.log10(high / low)) : Math.round((high - low) / 0.01);
  for (let k = 0; k <= count; k++) {
    const exact = log ? low * Math.pow(high / low, k / count) : low + ((high - low) * k) / count;
    const value = whole ? Math.round(exact) : Number(exact.toPrecision(log ? 3 : 6));
    if (value !== steps[steps.length - 1]) steps.push(value);
  }
  return steps;
}

const sliders = Object.fromEntries(
  DATA.controls.map((control) => {
    const root = document.querySelector(`.control[data-name="${control.name}"]`);
    const range = root.querySelector("input[type=range]");
    const steps = ladder(control);
    range.max = steps.length - 1;
    return [control.name, { root, range, steps, box: root.querySelector("input[type=text]"), kind: part(root, "kind"),
      tie: root.querySelector("input[type=checkbox]") }];
  }),
);

function nearestStep(steps, value) {
  let best = 0;
  for (let k = 1; k < steps.length; k++) {
    if (Math.abs(steps[k] - value) < Math.abs(steps[best] - value)) best = k;
  }
  return best;
}

function showSliders() {
  const used = DATA.theorems[state.theorem].sliders;
  for (const [name, { root, range, steps, box, kind, tie }] of Object.entries(sliders)) {
    const own = state.values[name];
    const value = own === null ? state.values.L_h : own;
    root.hidden = !used.includes(name);
    range.value = nearestStep(steps, value);
    range.setAttribute("aria-valuetext", shown(value));
    range.disabled = own === null;
    if (document.activeElement !== box) box.value = value === Infinity ? "inf" : String(value);
    box.size = Math.max(6, box.value.length + 1);  // so that no digit is cut off
    box.disabled = own === null;
    box.removeAttribute("aria-invalid");
    if (tie) tie.checked = own === null;
    kind.textContent = state.kinds[name] || "";
    kind.dataset.safe = isSafe(name, state.kinds[name]);
    kind.title = state.labels[name] || "";
  }
  for (const group of all("fieldset")) group.hidden = all(".control", group).every((control) => control.hidden);
}

function showLoaded() {
  const list = document.getElementById("labels");
  list.replaceChildren();
  for (const name in state.labels) {
    const term = document.createElement("dt");
    const text = document.createElement("dd");
    term.textContent = `${name} = ${shown(state.values[name])}, ${state.kinds[name] || "exact"}`;
    text.textContent = state.labels[name];
    list.append(term, text);
  }
  document.getElementById("source").textContent = state.source;
  document.getElementById("loaded").hidden = !state.source || !list.children.length;
}

// Everything that a change rewrites is looked up once: a slider that is dragged changes a thousand numbers at a time.
const cards = all(".version").map((root) => {
  const { theorem, version } = root.dataset;
  const cell = document.querySelector(`td[data-theorem="${theorem}"][data-version="${version}"]`);
  const bar = root.closest(".panel").querySelector(`.row[data-version="${version}"]`);
  const named = (name) => part(root, name);
  return {
    theorem, version, cell, cellMark: cell.querySelector(".mark"),
    standing: root.querySelector(".standing"),
    mark: named("mark"), title: named("title"), why: named("why"), ratio: named("ratio"),
    totals: [named("total"), part(cell, "cell"), part(bar, "bar")],
    pieces: all("rect", bar),
    terms: parts(root, "term").map((value) => ({ value, row: value.closest("tr"), share: part(value.closest("tr"), "share") })),
    conditions: all(".conditions > li", root).map((item) => ({
      item, mark: item.querySelector(".mark"), distance: part(item, "distance"), value: part(item, "value"), limit: part(item, "limit"),
    })),
    gammaMax: named("gammaMax"), times: named("times"), rooms: all(".room", root),
  };
});

function showCard(card, found) {
  const [mark, title, why] = DATA.standings[found.standing];
  for (const place of card.totals) write(place, found.total);
  card.cell.dataset.standing = card.standing.dataset.standing = found.standing;
  for (const place of [card.mark, card.cellMark]) tell(place, mark);
  card.cellMark.setAttribute("aria-label", title);
  tell(card.title, title);
  tell(card.why, why);
  const shares = sharesOf(found.terms);
  const most = Math.max(...shares);
  card.terms.forEach(({ value, row, share }, k) => {
    write(value, found.terms[k]);
    tell(share, percent(shares[k]));
    row.classList.toggle("dominant", shares[k] > 0 && shares[k] === most);
  });
  card.conditions.forEach((condition, k) => {
    const [limit, value] = found.conditions[k];
    const holds = value <= limit;
    condition.item.className = holds ? "holds" : "fails";
    tell(condition.mark, holds ? "✓" : "✗");
    tell(condition.distance, distance(limit, value));
    write(condition.value, value);
    write(condition.limit, limit);
  });
  write(card.gammaMax, found.gammaMax);
  write(card.times, found.gammaMax / state.values.gamma);
  card.rooms[0].hidden = found.gammaMax === 0;
  card.rooms[1].hidden = found.gammaMax > 0;
  return shares;
}

let fill = false;

function showBounds() {
  const v = spelled(state.values);
  const found = cards.map((card) => evaluate(card.theorem, card.version, v));
  for (const name in DATA.theorems) {
    const own = cards.map((card, k) => [card, found[k]]).filter(([card]) => card.theorem === name);
    const { main } = DATA.theorems[name];
    const whole = own.find(([card]) => card.version === main)[1].total;
    const largest = Math.max(0, ...own.map(([, one]) => one.total).filter(Number.isFinite));
    for (const [card, one] of own) {
      const shares = showCard(card, one);
      const against = one.total / whole;
      const text = against === 1 ? `the same as ${main}` : `${shown(against)}× ${main}`;
      tell(card.ratio, card.version === main || !Number.isFinite(against) ? "" : text);
      const width = fill || largest === 0 || !Number.isFinite(one.total) ? 1000 : (1000 * one.total) / largest;
      let left = 0;
      card.pieces.forEach((piece, k) => {
        piece.setAttribute("x", left);
        piece.setAttribute("width", shares[k] * width);
        left += shares[k] * width;
      });
    }
  }
}

// On a narrow screen the tables are far from the sliders, so that the chosen bound stays in sight.
function showNow() {
  const now = document.getElementById("now");
  const cell = document.querySelector(`td[data-theorem="${state.theorem}"][data-version="${DATA.theorems[state.theorem].main}"]`);
  const mark = cell.querySelector(".mark");
  now.dataset.standing = cell.dataset.standing;
  write(part(now, "now"), Number(part(cell, "cell").value));
  now.querySelector(".mark").textContent = mark.textContent;
  now.querySelector(".mark").setAttribute("aria-label", mark.getAttribute("aria-label"));
  document.getElementById("choose").value = state.theorem;
}

function showTheorem() {
  for (const panel of all(".panel")) panel.hidden = panel.dataset.theorem !== state.theorem;
  for (const row of all(".overview tbody tr")) {
    const chosen = row.dataset.theorem === state.theorem;
    row.classList.toggle("chosen", chosen);
    row.querySelector("input").checked = chosen;
  }
}

function say(sentence, bad = false) {
  const place = document.getElementById("said");
  place.textContent = sentence;
  place.classList.toggle("bad", bad);
  place.hidden = !sentence;
}

let waiting = 0;

// A browser limits how often the address may change per second, so that changes wait for a pause.
function keepLink() {
  clearTimeout(waiting);
  waiting = setTimeout(() => history.replaceState(null, "", link()), 150);
}

// What a screen reader says once a slider rests.
function announce() {
  const now = document.getElementById("now");
  const { title, main } = DATA.theorems[state.theorem];
  const verdict = now.querySelector(".mark").getAttribute("aria-label");
  tell(document.getElementById("heard"), `${title}, ${main}: ${part(now, "now").textContent}. ${verdict}.`);
}

function show() {
  showTheorem();
  showSliders();
  showLoaded();
  showBounds();
  showNow();
  showSteps();
  askForMap();
}

function changed() {
  say("");
  show();
  keepLink();
}

for (const [name, slider] of Object.entries(sliders)) {
  slider.range.addEventListener("input", () => {
    put(name, slider.steps[Number(slider.range.value)]);
    changed();
  });
  const typed = (final) => {
    const value = parseNumber(slider.box.value);
    const wrong = fault(name, value);
    if (!wrong && value !== state.values[name]) {
      put(name, value);
      changed();
    }
    slider.box.toggleAttribute("aria-invalid", Boolean(wrong));
    if (wrong) slider.box.setAttribute("aria-invalid", "true");
    if (wrong && final) say(wrong, true);
  };
  slider.box.addEventListener("input", () => typed(false));
  slider.box.addEventListener("change", () => typed(true));
  slider.box.addEventListener("blur", () => showSliders());
  if (slider.tie) {
    slider.tie.addEventListener("change", () => {
      put(name, slider.tie.checked ? null : state.values.L_h);
      changed();
    });
  }
}
for (const choice of [...all("input[name=theorem]"), document.getElementById("choose")]) {
  choice.addEventListener("change", () => {
    state.theorem = choice.value;
    changed();
  });
}
for (const row of all(".overview tbody tr")) {
  row.addEventListener("click", () => {
    if (state.theorem === row.dataset.theorem) return;
    state.theorem = row.dataset.theorem;
    changed();
  });
}
for (const label of all(".fill")) {
  label.hidden = false;
  label.querySelector("input").addEventListener("change", (event) => {
    fill = event.target.checked;
    for (const other of all(".fill input")) other.checked = fill;
    showBounds();
  });
}
document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("file").addEventListener("change", async (event) => {
  const file = event.target.files[0];
  if (!file) return;
  const wrong = load(await file.text(), file.name);
  event.target.value = "";
  if (!wrong) changed();
  const names = Object.keys(state.labels).join(", ");
  say(wrong || `Loaded ${names} from ${file.name}; the other values are as they were, constants assumed.`, Boolean(wrong));
});
document.getElementById("copy").addEventListener("click", async () => {
  clearTimeout(waiting);
  history.replaceState(null, "", link());
  try {
    await navigator.clipboard.writeText(location.href);
    say("Copied the link to these values.");
  } catch {
    say("The browser does not let a page copy; the link to these values is in the address bar.");
  }
});
document.getElementById("reset").addEventListener("click", () => {
  restart();
  changed();
  say("Back at the starting values.");
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
addEventListener("hashchange", () => {
  if (follow(location.hash)) show();
});
