// The values that the sliders hold, what the theorems say at them, files of constants, and links.

const DATA = JSON.parse(document.getElementById("data").textContent);
const CONTROLS = Object.fromEntries(DATA.controls.map((control) => [control.name, control]));
const KINDS = ["exact", "upper", "lower", "sample", "assumed"];
const state = { theorem: DATA.start.theorem, values: {}, kinds: {}, labels: {}, source: "" };

function restart() {
  const { values, kinds, labels, source } = DATA.start;
  for (const name in CONTROLS) state.values[name] = values[name] === null ? null : parseNumber(values[name]);
  Object.assign(state, { kinds: { ...kinds }, labels: { ...labels }, source });
}

// What is wrong with a value, in one sentence, or nothing.
function fault(name, value) {
  const rule = CONTROLS[name];
  if (value === null && rule.start === null) return "";
  const fine =
    !Number.isNaN(value) &&
    (Number.isFinite(value) || (rule.infinite && value > 0)) &&
    (rule.above ? value > rule.least : value >= rule.least) &&
    (rule.most === null || (rule.below ? value < rule.most : value <= rule.most)) &&
    (!rule.whole || Number.isInteger(value));
  if (fine) return "";
  const most = name === "I" ? `, and here at most ${rule.most}` : "";
  return `${name} must be ${rule.rule}${most}.`;
}

// The values as the theorems spell them.
function spelled(values) {
  const v = {};
  for (const name in values) {
    const square = DATA.squared[name];
    v[square || name] = square ? values[name] * values[name] : values[name];
  }
  if (v.L_h_rms === null) v.L_h_rms = v.L_h;
  return v;
}

// A bound may fall in a setting, or turn, so that only the exact number is safe; see values/estimates.py.
function isSafe(name, kind) {
  return kind === "exact" || (CONTROLS[name].constant && kind === (name === "mu" ? "lower" : "upper"));
}

// Why a constant does not belong to what the others are about, as in values/scopes.py; nothing if it does.
function misfit(name, scope, about) {
  if (!scope) return "";
  if (about.federation && scope.federation !== about.federation) {
    return scope.federation ? "belongs to another federation" : "does not say to which federation it belongs";
  }
  if (!["F", "d0", "G"].includes(name)) return "";
  if (scope.start === undefined && scope.seed === undefined) return "does not say to which first model it belongs";
  if (about.start && scope.start !== about.start) return "belongs to another first model";
  return name === "G" ? "holds only for models near the first one, which a run may leave" : "";
}

function standing(theorem, version, holds) {
  if (!holds) return "not certified";
  const used = DATA.theorems[theorem].used[version];
  for (const name in state.kinds) {
    if (used.includes(DATA.squared[name] || name) && !isSafe(name, state.kinds[name])) return "plug-in";
  }
  return version === "printed" && !DATA.theorems[theorem].printIsRight ? "as printed" : "certified";
}

function sum(terms) {
  let total = 0;
  for (const term of terms) total += term;
  return total;
}

// Each term's share of the total; infinite terms share it among themselves.
function sharesOf(terms) {
  const endless = terms.some((term) => term === Infinity);
  const weights = endless ? terms.map((term) => (term === Infinity ? 1 : 0)) : terms;
  const total = sum(weights);
  return weights.map((weight) => (total > 0 ? weight / total : weight));
}

function evaluate(theorem, version, v) {
  const found = FORMULAS[theorem][version](v);
  const holds = found.conditions.every(([limit, value]) => value <= limit);
  return { ...found, total: sum(found.terms), holds, standing: standing(theorem, version, holds) };
}

// No more workers can be sampled than there are: whichever was moved last stands.
function keepSampling(name) {
  if (state.values.M <= state.values.N) return;
  if (name === "M") state.values.N = state.values.M;
  else state.values.M = state.values.N;
}

// Set a slider's value; what a reader sets, a reader vouches for.
function put(name, value) {
  state.values[name] = value;
  delete state.kinds[name];
  delete state.labels[name];
  keepSampling(name);
}

function link() {
  const parts = new URLSearchParams({ theorem: state.theorem });
  for (const name in state.values) {
    if (state.values[name] !== null) parts.set(name, state.values[name]);
    if (state.kinds[name]) parts.set("kind." + name, state.kinds[name]);
  }
  return "#" + parts;
}

// Take the state from a link; what it does not name, or names wrongly, stays as it is.
function follow(hash) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  if (!parts.has("theorem")) return false;
  if (Object.hasOwn(DATA.theorems, parts.get("theorem"))) state.theorem = parts.get("theorem");
  for (const name in CONTROLS) {
    const value = parts.has(name) ? parseNumber(parts.get(name)) : CONTROLS[name].start === null ? null : NaN;
    if (fault(name, value)) continue;
    if (value !== state.values[name]) put(name, value);
    const kind = parts.get("kind." + name);
    if (KINDS.includes(kind)) state.kinds[name] = kind;
    else delete state.kinds[name];
  }
  keepSampling("N");
  return true;
}

// The counts and rates of the run that a file's constants were measured for, as far as the file says.
function ownValues(data) {
  const part = (thing, name) => {
    const found = typeof thing === "object" && thing !== null ? thing[name] : null;
    return typeof found === "object" && found !== null ? found : {};
  };
  const settings = part(data, "settings"), experiment = part(settings, "experiment");
  const section = (name) => (Object.keys(part(experiment, name)).length ? part(experiment, name) : part(settings, name));
  const run = Object.keys(part(experiment, "run")).length ? experiment.run : settings;
  const algorithm = section("algorithm");
  const said = { N: settings.num_workers, M: section("participation").participants, I: run.local_steps, R: run.rounds };
  for (const name of ["gamma", "eta", "beta", "beta1", "beta2", "tau"]) said[name] = algorithm[name];
  return Object.fromEntries(Object.entries(said).filter(([name, value]) => typeof value === "number" && !fault(name, value)));
}

const isCertain = (key, kind) => kind === "exact" || kind === (key === "mu" ? "lower" : "upper");

// What each entry of a file of constants was proved for; null for a number that somebody typed.
function scopes(data, entries, isObject) {
  const federation = isObject(data) && isObject(data.settings) ? data.settings.federation : undefined;
  let common = null;
  if (isObject(data) && isObject(data.constants)) common = typeof federation === "string" ? { federation } : {};
  else if (isObject(data) && "x_star" in data) common = {};
  return (key) => {
    const entry = entries[key];
    if (!isObject(entry)) return null;
    return isObject(entry.scope) ? entry.scope : common;
  };
}

// Read a file of constants as theory/arguments.py does, and its run as explore/run_settings.py does; returns what is wrong with it, in one sentence, or nothing.
function load(text, source) {
  // Python writes Infinity and NaN, which JSON has not.
  const quoted = /"(?:[^"\\]|\\.)*"|-?\bInfinity\b|\bNaN\b/g;
  let data;
  try {
    data = JSON.parse(text.replace(quoted, (part) => (part[0] === '"' ? part : `"${part}"`)));
  } catch {
    return `${source} is not valid JSON; choose what 'fedgauge measure --out' wrote.`;
  }
  const isObject = (thing) => typeof thing === "object" && thing !== null && !Array.isArray(thing);
  const entries = isObject(data) && isObject(data.constants) ? data.constants : data;
  const values = {}, kinds = {}, labels = {};
  const scopeOf = scopes(data, entries, isObject);
  const about = {};
  for (const key of isObject(entries) ? Object.keys(entries) : []) {
    const scope = scopeOf(key);
    if (!scope || !isCertain(key, entries[key].kind || "exact")) continue;
    about.federation ||= scope.federation;
    about.start ||= scope.start;
  }
  for (const name in CONTROLS) {
    if (!isObject(entries)) break;
    const other = DATA.squared[name] || (name === "L_h_rms" ? "L_h_paper" : name);
    const first = DATA.squared[name] ? other : name;  // the theorems' own spelling comes first
    const key = [first, name, other].find((spelling) => Object.hasOwn(entries, spelling));
    const flat = key === "mu" && (isObject(entries.mu) ? entries.mu.value : entries.mu) <= 0;  // no strong convexity
    if (key === undefined || flat) {
      // What the file does not say of its federation, the slider does not know either.
      if (CONTROLS[name].constant && state.values[name] !== null) kinds[name] = "assumed";
      continue;
    }
    const entry = entries[key];
    const raw = isObject(entry) ? entry.value : entry;
    let value = typeof raw === "number" || /Infinity$/.test(raw) ? Number(raw) : NaN;
    if (key === DATA.squared[name]) value = Math.sqrt(value);
    const wrong = fault(name, value);
    if (wrong) return `${source} cannot be used: ${wrong}`;
    const kind = isObject(entry) && entry.kind !== undefined ? entry.kind : "exact";
    if (!KINDS.includes(kind)) return `${source} cannot be used: the kind of ${name} must be one of ${KINDS.join(", ")}.`;
    const why = isCertain(key, kind) ? misfit(name, scopeOf(key), about) : "";
    values[name] = value;
    kinds[name] = why ? "assumed" : kind;
    labels[name] = why
      ? `${name} counts as assumed, because it ${why}.`
      : isObject(entry) && entry.method !== undefined ? String(entry.method) : "";
  }
  if (!Object.keys(values).length) {
    return `${source} holds no constant that a theorem uses; choose what 'fedgauge measure --out' wrote.`;
  }
  const own = ownValues(data);
  for (const name in own) if (!(name in values)) values[name] = own[name];
  DATA.start.own = own;
  if (values.M > values.N) return `${source} cannot be used: M must be at most N.`;
  Object.assign(state.values, values);
  Object.assign(state, { kinds, labels, source });
  keepSampling("N");
  return "";
}
