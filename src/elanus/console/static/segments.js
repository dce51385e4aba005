// The segments of a collection as a treemap: the area is the number of rows, the color the state.

import { view } from "./api.js";
import { chosen } from "./chooser.js";
import { h, select } from "./dom.js";
import { plural, size } from "./format.js";
import { draw, grouped, tileAt } from "./treemap.js";

const COLORS = {
  Growing: "#e0a030", Sealed: "#b06fc4", Flushing: "#d0705c", Flushed: "#3d86c6", Importing: "#4aa58a", Dropped: "#8a939d",
};
const GROUPS = {
  partition: (segment) => segment.partition,
  vchannel: (segment) => segment.vchannel || "no vchannel",
  node: (segment) => segment.nodes.join(", ") || "not loaded",
  state: (segment) => segment.state,
};
const HEIGHT = 460;
let group = "vchannel";

export default async function segments(place, parts, life) {
  const { database, collection, line } = await chosen("segments", parts);
  if (!collection) return place.replaceChildren(line);
  const map = h("div");
  const body = { dbName: database, collectionName: collection };
  let found = [];
  const again = () => map.replaceChildren(...drawing(found, again));
  place.replaceChildren(line, map);
  life.repaint = () => found.length && again();
  await life.every(5000, async () => {
    const lists = await view("segments", body);
    const text = JSON.stringify(lists);
    if (!life.active || text === again.text) return;
    again.text = text; // a treemap that has not changed keeps its focus
    found = lists.map(([id, state, rows, partition, vchannel, nodes, bytes, index]) => ({ id, state, rows, partition, vchannel, nodes, bytes, index }));
    again();
  });
}

function drawing(found, again) {
  const rows = found.reduce((sum, segment) => sum + Number(segment.rows), 0);
  const change = (name) => {
    group = name;
    again();
  };
  const states = [...new Set(found.map((segment) => segment.state))];
  const marks = states.map((state) => {
    const mark = h("span", { class: "key" });
    mark.style.background = COLORS[state] || COLORS.Dropped;
    return [mark, state];
  });
  const head = h("div", { class: "line" }, select("Group by", Object.keys(GROUPS), group, change),
    h("span", {}, `${plural(found.length, "segment")}, ${plural(rows, "row")}`, marks));
  if (!found.length) return [head, h("p", { class: "quiet" }, "The collection has no segments yet: they appear with its first rows.")];
  const detail = h("p", { role: "status" }, "Point at a tile, or use the arrow keys.");
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `${plural(found.length, "segment")} by ${group}; arrow keys go through them` });
  canvas.style.height = `${HEIGHT}px`;
  requestAnimationFrame(() => paint(canvas, found, detail));
  return [head, canvas, detail];
}

function paint(canvas, found, detail) {
  const width = canvas.clientWidth;
  if (!width) return; // another page is shown already
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = HEIGHT * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const map = grouped(found, GROUPS[group], (segment) => Math.max(1, Number(segment.rows)), width, HEIGHT);
  const front = getComputedStyle(document.body).color;
  const picture = () => draw(context, map, (segment) => COLORS[segment.state] || COLORS.Dropped, front, (segment) => plural(segment.rows, "row"));
  picture();
  const still = context.getImageData(0, 0, canvas.width, canvas.height);
  let at = -1;
  const pick = (next) => {
    if (next < 0 || next >= map.tiles.length || next === at) return;
    at = next;
    const tile = map.tiles[at];
    context.putImageData(still, 0, 0);
    Object.assign(context, { lineWidth: 3, strokeStyle: front });
    context.strokeRect(tile.x + 1.5, tile.y + 1.5, Math.max(1, tile.w - 3), Math.max(1, tile.h - 3));
    detail.textContent = described(tile.segment);
  };
  canvas.addEventListener("pointermove", (event) => pick(tileAt(map.tiles, event.offsetX, event.offsetY)));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    pick(at + step);
  });
}

function described(segment) {
  const facts = [`segment ${segment.id}`, segment.state, plural(segment.rows, "row"), `partition ${segment.partition}`];
  if (segment.vchannel) facts.push(segment.vchannel);
  if (segment.nodes.length) facts.push(`on node ${segment.nodes.join(", ")}`, size(segment.bytes));
  if (segment.index) facts.push(`index ${segment.index}`);
  return facts.join(" · ");
}
