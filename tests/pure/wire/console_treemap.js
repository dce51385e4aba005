// Lays out and draws 10,000 segments, and prints what is wrong with the tiles.

import { draw, grouped, tileAt } from "./treemap.js";
const segments = Array.from({ length: 10000 }, (_, at) => ({ id: at, rows: 1 + ((at * 7919) % 1000), group: at % 8 }));
const map = grouped(segments, (one) => one.group, (one) => one.rows, 1200, 460);
const rows = segments.reduce((sum, one) => sum + one.rows, 0);
let calls = 0;
const written = () => (calls += 1);
const context = { fillRect: () => (calls += 1), strokeRect: () => (calls += 1), strokeText: written, fillText: written, measureText: () => ({ width: Infinity }) };
draw(context, map, () => "red", "black", () => "rows");
let wrong = 0, long = 0, lost = 0;
map.tiles.forEach((tile, at) => {
  const area = tile.segment.rows / rows * 1200 * 460;
  if (Math.abs(tile.w * tile.h - area) > 1e-6 * area + 1e-6) wrong += 1;
  if (Math.max(tile.w / tile.h, tile.h / tile.w) > 8) long += 1;
  if (tile.x < -1e-6 || tile.y < -1e-6 || tile.x + tile.w > 1200.001 || tile.y + tile.h > 460.001) lost += 1;
  if (at % 500 === 0 && tileAt(map.tiles, tile.x + tile.w / 2, tile.y + tile.h / 2) !== at) lost += 1;
});
process.stdout.write(JSON.stringify({ tiles: map.tiles.length, groups: map.groups.length, calls, wrong, long, lost }));
