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

// A number that somebody typed or a file holds; NaN where it is none.
function parseNumber(text) {
  const plain = String(text).trim().replace("−", "-").replace(",", ".");
  if (/^\+?(inf|infinity|∞)$/i.test(plain)) return Infinity;
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(plain) ? Number(plain) : NaN;
}
