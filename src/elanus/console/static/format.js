// Numbers as people read them.

export function size(bytes) {
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= factor) return `${(bytes / factor).toFixed(1)} ${unit}`;
  }
  return `${Math.round(bytes)} B`;
}

export function duration(ms) {
  for (const [unit, factor] of [["d", 864e5], ["h", 36e5], ["min", 6e4], ["s", 1e3]]) {
    if (ms >= factor) return `${(ms / factor).toFixed(1)} ${unit}`;
  }
  return `${Math.round(ms)} ms`;
}

export function plural(number, noun) {
  return `${count(number)} ${noun}${Number(number) === 1 ? "" : "s"}`;
}

export function count(number) {
  return Number(number).toLocaleString("en");
}

// The growth of a counter per second between two samples; null if it began again, or no time has passed.
export function rate(before, after, name) {
  if (!before) return null;
  const seconds = (after.atMs - before.atMs) / 1000;
  const grown = after.figures[name] - before.figures[name];
  return seconds > 0 && grown >= 0 ? grown / seconds : null;
}

// The points of a line through `values` in a box, as the path of an SVG. The largest value is at the top.
export function sparkline(values, width, height) {
  const highest = Math.max(1, ...values);
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  const points = values.map((value, at) => `${(at * step).toFixed(1)} ${(height - (value / highest) * height).toFixed(1)}`);
  return points.length ? `M${points.join("L")}` : "";
}
