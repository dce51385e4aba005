// A sample of a collection's vectors as points of a plane, along their two principal axes. A point leads to a search.

import { call, view } from "./api.js";
import { address, chosen } from "./chooser.js";
import { plainFields } from "./collections.js";
import { h, shown } from "./dom.js";
import { count } from "./format.js";
import { nearest, placed } from "./points.js";

const COLORS = ["#3d86c6", "#e0a030", "#4aa58a", "#b06fc4", "#d0705c", "#7a8a2e", "#c25a8f", "#8a939d"];
const HEIGHT = 520;

export default async function projection(place, parts, life) {
  const { database, collection, line } = await chosen("projection", parts);
  if (!collection) return place.replaceChildren(line);
  const body = { dbName: database, collectionName: collection };
  const found = await call("collections/describe", body);
  if (!life.active) return;
  const vectors = found.fields.filter((field) => field.type.endsWith("Vector") && !field.type.startsWith("Sparse")).map((field) => field.name);
  if (!vectors.length) return place.replaceChildren(line, h("p", { class: "quiet" }, "The collection has no dense vectors."));
  const options = (names) => names.map((name) => h("option", { value: name }, name || "none"));
  const field = h("select", {}, options(vectors));
  field.value = vectors[0];
  const color = h("select", {}, options(["", ...plainFields(found)]));
  color.value = "";
  const filter = h("input", { placeholder: "all rows", spellcheck: "false" });
  const limit = h("input", { type: "number", min: "1", max: "5000", value: "2000" });
  const picture = h("div", { "aria-live": "polite" });
  const draw = async (event) => {
    event?.preventDefault();
    try {
      const sample = await view("projection", { ...body, fieldName: field.value, colorField: color.value, filter: filter.value.trim(), limit: Number(limit.value) });
      const colorField = color.value;
      life.repaint = () => picture.replaceChildren(...drawn(sample, colorField, (key) => (location.hash = address("playground", database, collection, String(key)))));
      if (life.active) life.repaint();
    } catch (error) {
      if (error.status === 401) return life.failed(error);
      picture.replaceChildren(h("div", { class: "error", role: "alert" }, error.message));
    }
  };
  place.replaceChildren(line, h("form", { class: "line", onsubmit: draw }, h("label", {}, "Vector field", field), h("label", {}, "Color", color),
    h("label", {}, "Rows at most", limit), h("label", { class: "wide" }, "Filter", filter), h("button", {}, "Draw")), picture);
  await draw();
}

function drawn(sample, colorField, search) {
  const { rows, share } = sample;
  const values = [...new Set(rows.map((row) => brief(row[3])))].sort();
  const colorOf = (row) => COLORS[values.indexOf(brief(row[3])) % COLORS.length];
  const marks = colorField && values.length <= COLORS.length ? values.map((value, at) => {
    const mark = h("span", { class: "key" });
    mark.style.background = COLORS[at];
    return [mark, value];
  }) : [];
  const text = h("p", {}, `${count(rows.length)} of ${count(sample.count)} rows; the two axes show ${(share * 100).toFixed(0)} % of their variance`, marks);
  if (!rows.length) return [text];
  const detail = h("p", { role: "status" }, "Point at a row, or use the arrow keys; click or Enter searches with it.");
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `${rows.length} rows as points; arrow keys go through them` });
  canvas.style.height = `${HEIGHT}px`;
  requestAnimationFrame(() => paint(canvas, rows, colorOf, detail, colorField, search));
  return [text, canvas, detail];
}

// A value in a line of text; one of JSON is written as such.
function brief(value) {
  const text = value === null ? "null" : shown(value);
  return text.length > 100 ? `${text.slice(0, 100)}…` : text;
}

function paint(canvas, rows, colorOf, detail, colorField, search) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (!width) return; // another page is shown already
  canvas.width = width * ratio;
  canvas.height = HEIGHT * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const points = placed(rows, width, HEIGHT);
  points.forEach(([x, y], at) => {
    context.fillStyle = colorOf(rows[at]);
    context.fillRect(x - 1.5, y - 1.5, 3, 3);
  });
  const still = context.getImageData(0, 0, canvas.width, canvas.height);
  const front = getComputedStyle(document.body).color;
  let at = -1;
  const pick = (next) => {
    if (next < 0 || next >= rows.length || next === at) return;
    at = next;
    context.putImageData(still, 0, 0);
    context.strokeStyle = front;
    context.lineWidth = 2;
    context.strokeRect(points[at][0] - 5, points[at][1] - 5, 10, 10);
    const [key, , , value] = rows[at];
    detail.textContent = `row ${brief(key)}${colorField ? ` · ${colorField} ${brief(value)}` : ""}`;
  };
  canvas.addEventListener("pointermove", (event) => pick(nearest(points, event.offsetX, event.offsetY)));
  canvas.addEventListener("click", () => at >= 0 && search(rows[at][0]));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && at >= 0) return void search(rows[at][0]);
    if (step === undefined) return;
    event.preventDefault();
    pick(at + step);
  });
}
