// Points of a plane in a picture.

const MARGIN = 12;
const NEAR = 12;

// `rows`: [key, x, y, ...]. Returns [x, y] of each in a picture, with one scale for both axes, so distances can be compared.
export function placed(rows, width, height) {
  const [left, right] = range(rows, 1);
  const [low, high] = range(rows, 2);
  const scale = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (high - low || 1));
  return rows.map(([, x, y]) => [width / 2 + (x - (left + right) / 2) * scale, height / 2 - (y - (low + high) / 2) * scale]);
}

function range(rows, at) {
  let [least, most] = [Infinity, -Infinity];
  for (const row of rows) [least, most] = [Math.min(least, row[at]), Math.max(most, row[at])];
  return [least, most];
}

// The index of the nearest point, -1 if none is near.
export function nearest(points, x, y) {
  let found = -1;
  let least = NEAR * NEAR;
  points.forEach(([px, py], at) => {
    const distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < least) [least, found] = [distance, at];
  });
  return found;
}
