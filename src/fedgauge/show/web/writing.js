// How numbers are written; writing.py writes them the same way.

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function shown(x) {
  if (Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const [front, power] = x.toExponential(3).split("e");
  const exponent = Number(power);
  const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (exponent >= -4 && exponent <= 4) return trim(x.toFixed(Math.max(0, 3 - exponent)));
  const mantissa = trim(front);
  const raised = String(exponent).replace("-", "⁻").replace(/\d/g, (digit) => SUPERSCRIPTS[digit]);
  return (mantissa === "1" ? "" : mantissa + "×") + "10" + raised;
}

function percent(share) {
  return share > 0 && share < 0.005 ? "<1%" : (100 * share).toFixed(0) + "%";
}

function distance(limit, value) {
  if (value <= limit) {
    if (limit === Infinity) return "holds, no limit";
    return value > 0 ? `holds, ${shown(limit / value)}× room` : "holds";
  }
  return limit > 0 ? `fails, ${shown(value / limit)}× over` : "fails, must be 0";
}
