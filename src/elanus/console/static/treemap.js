// A squarified treemap (Bruls, Huizing and van Wijk, 2000): tiles whose areas are as given, as square as possible.

// `weights`: numbers, largest first, all above 0. Returns a box {x, y, w, h} for each, in the same order.
export function squarified(weights, x, y, w, h) {
  const boxes = [];
  let left = weights.reduce((sum, weight) => sum + weight, 0);
  let at = 0;
  while (at < weights.length) {
    const short = Math.min(w, h);
    const scale = left > 0 ? (w * h) / left : 0;
    let end = at;
    let sum = 0;
    let worst = Infinity;
    while (end < weights.length) {
      const larger = sum + weights[end];
      const shape = worstShape(weights[at] * scale, weights[end] * scale, larger * scale, short);
      if (shape > worst) break;
      worst = shape;
      sum = larger;
      end += 1;
    }
    const isLast = end === weights.length;
    const depth = isLast ? (w >= h ? w : h) : (sum * scale) / short;
    let along = 0;
    for (; at < end; at += 1) {
      const length = (weights[at] / sum) * short;
      if (w >= h) boxes.push({ x, y: y + along, w: depth, h: length });
      else boxes.push({ x: x + along, y, w: length, h: depth });
      along += length;
    }
    left -= sum;
    if (w >= h) [x, w] = [x + depth, w - depth];
    else [y, h] = [y + depth, h - depth];
  }
  return boxes;
}

function worstShape(largest, smallest, sum, short) {
  const side = short * short;
  return Math.max((side * largest) / (sum * sum), (sum * sum) / (side * smallest));
}

// Segments in groups: the tiles of a group touch. `groupOf` names the group of a segment, `weightOf` its area.
// Returns {groups: [{name, x, y, w, h}], tiles: [{segment, x, y, w, h}]}.
export function grouped(segments, groupOf, weightOf, w, h) {
  const members = new Map();
  for (const segment of segments) {
    const name = groupOf(segment);
    if (!members.has(name)) members.set(name, []);
    members.get(name).push([weightOf(segment), segment]);
  }
  const sums = [...members].map(([name, of]) => [of.reduce((sum, [weight]) => sum + weight, 0), name, of]);
  sums.sort((one, other) => other[0] - one[0]);
  const groups = squarified(sums.map(([sum]) => sum), 0, 0, w, h);
  const tiles = [];
  sums.forEach(([, name, of], at) => {
    const box = groups[at];
    box.name = name;
    of.sort((one, other) => other[0] - one[0]);
    const boxes = squarified(of.map(([weight]) => weight), box.x, box.y, box.w, box.h);
    boxes.forEach((tile, index) => tiles.push({ ...tile, segment: of[index][1] }));
  });
  return { groups, tiles };
}

const TEXT = "#10151b"; // on all colors of tiles
const HALO = "rgba(255, 255, 255, .75)"; // around it, where small tiles are below
const LINE = 16;

// A text in the corner of a box, if it fits.
function written(context, text, x, y, w) {
  if (context.measureText(text).width + 12 > w) return;
  context.strokeText(text, x + 6, y);
  context.fillText(text, x + 6, y);
}

// Draws each tile with one call, an outline and the name of each group, and what `textOf` says of the tiles that are large enough.
export function draw(context, { groups, tiles }, colorOf, lineColor, textOf) {
  for (const tile of tiles) {
    const gap = Math.min(tile.w, tile.h) > 4 ? 1 : 0;
    context.fillStyle = colorOf(tile.segment);
    context.fillRect(tile.x, tile.y, tile.w - gap, tile.h - gap);
  }
  context.strokeStyle = lineColor;
  context.lineWidth = 2;
  for (const box of groups) context.strokeRect(box.x, box.y, box.w, box.h);
  Object.assign(context, { fillStyle: TEXT, strokeStyle: HALO, lineWidth: 3 });
  context.font = "bold 13px system-ui, sans-serif";
  for (const box of groups) if (box.h > 2 * LINE) written(context, box.name, box.x, box.y + LINE + 2, box.w);
  context.font = "12px system-ui, sans-serif";
  for (const tile of tiles) if (tile.h > 3 * LINE) written(context, textOf(tile.segment), tile.x, tile.y + tile.h - 8, tile.w);
}

export function tileAt(tiles, x, y) {
  return tiles.findIndex((tile) => x >= tile.x && x < tile.x + tile.w && y >= tile.y && y < tile.y + tile.h);
}
