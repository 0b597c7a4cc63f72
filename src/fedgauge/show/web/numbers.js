// What the recorded formulas need beyond Math.

// The neighbour of x towards 0, which is the only direction that the formulas take.
function nextAfter(x) {
  if (!(x > 0)) return x;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  view.setBigUint64(0, view.getBigUint64(0) - 1n);
  return view.getFloat64(0);
}

// The loop of theory/quadratic.py, which cannot be recorded because its length is a value.
function driftSumRoot(varphi, I) {
  const n = I - 1;
  if (!(varphi > 1)) return Math.pow(Math.max((n - 1) * n * (n + 1) * (n * (8 * n + 5) - 2) / 120, 0), 0.25);
  const shrink = 1 / (varphi * varphi);
  let inner = 0, total = 0;
  for (let k = 2; k < I; k++) {
    inner = inner * shrink + (k - 1) * (k - 1);
    total = total * shrink + k * inner;
  }
  return total > 0 ? Math.pow(total, 0.25) * Math.pow(varphi, (I - 3) / 2) : 0;
}

// The sums of theory/growth.py, whose length is a value too.
const GROWTH = { most: 16384, terms: 48, short: 24, rows: [], size: 0, limits: new Map(), last: [NaN, NaN, null] };

// For p = 1.., the p-fold sums of square roots over I^(p + 1/2), for every I up to a power of two.
function growRoots(I) {
  let size = 2;
  while (size < I) size *= 2;
  let sums = Float64Array.from({ length: size + 1 }, (_, k) => Math.sqrt(k));
  GROWTH.rows = [];
  GROWTH.size = size;
  for (let p = 1; p <= GROWTH.terms; p++) {
    const next = new Float64Array(size + 1), row = new Float64Array(size + 1);
    for (let k = 1; k <= size; k++) {
      next[k] = next[k - 1] + sums[k - 1];
      row[k] = next[k] / Math.pow(k, p + 0.5);
    }
    sums = next;
    GROWTH.rows.push(row);
  }
}

function growths(I, y) {
  if (GROWTH.last[0] === I && GROWTH.last[1] === y) return GROWTH.last[2];
  if (I <= GROWTH.most && GROWTH.size < I) growRoots(I);
  const z = I * y;
  let part = (I * (I - 1)) / 2, power = 1, limit = 1;
  let model = 0, modelSlope = 0, noise = 0, noiseSlope = 0;
  for (let p = 1; p <= Math.min(GROWTH.terms, Math.max(I - 1, 1)); p++) {
    limit /= p + 0.5;
    const root = (I <= GROWTH.most ? GROWTH.rows[p - 1][I] : limit) * power;
    model += part;
    modelSlope += p * part;
    noise += root;
    noiseSlope += p * root;
    if (p > GROWTH.short && part * p < 1e-18 * modelSlope) break;
    part *= (y * (I - p - 1)) / (p + 2);
    power *= z;
  }
  const found = [y * model, modelSlope, Math.sqrt(I) * z * noise, Math.sqrt(I) * I * noiseSlope];
  GROWTH.last = [I, y, found];
  return found;
}

function growthLimit(I, ratio) {
  if (I === 1) return Infinity;
  const key = `${I} ${ratio}`;
  if (GROWTH.limits.has(key)) return GROWTH.limits.get(key);
  let y = (2 * ratio) / (I - 1);
  for (let k = 0; k < 64; k++) {
    const [model, slope] = growths(I, y);
    const step = (model / I - ratio) / (slope / I);
    if (!(step > 1e-15 * y)) break;
    y -= step;
  }
  if (GROWTH.limits.size > 20000) GROWTH.limits.clear();
  GROWTH.limits.set(key, y * (1 - 1e-13));
  return y * (1 - 1e-13);
}

// The recursion of theory/momentum.py.
let momentumLast = [NaN, NaN, NaN, null];
function momentumSpread(I, y, beta) {
  if (momentumLast[0] === I && momentumLast[1] === y && momentumLast[2] === beta) return momentumLast[3];
  let apart = 0, push = 0, noise = 0, pull = 0, own = 0, walk = 0, power = 1;
  const sums = [0, 0, 0];
  for (let k = 0; k < I; k++) {
    sums[0] += apart * apart;
    sums[1] += apart * noise;
    sums[2] += noise * noise;
    push = beta * push + 1 + y * apart;
    pull = beta * pull + y * noise;
    power *= beta;
    walk += Math.pow((1 - power) / (1 - beta), 2);
    apart += push;
    own += pull;
    noise = Math.sqrt(walk) + own;
  }
  momentumLast = [I, y, beta, sums.map((total) => total / I)];
  return momentumLast[3];
}

// A number that somebody typed or a file holds; NaN where it is none.
function parseNumber(text) {
  const plain = String(text).trim().replace("−", "-").replace(",", ".");
  if (/^\+?(inf|infinity|∞)$/i.test(plain)) return Infinity;
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(plain) ? Number(plain) : NaN;
}
