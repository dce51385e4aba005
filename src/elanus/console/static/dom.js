// Elements from plain calls. All texts are set as text, so data of users is never read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

const CELL_CHARACTERS_MAX = 500; // a page of rows with megabytes of text would keep the browser busy for minutes

// `columns`: names; one that begins with "#" is a column of numbers, and one that is a node is shown as it is. `rows`: lists of
// texts or nodes. A long text is cut, and a button shows the whole.
export function table(columns, rows, none = "nothing") {
  if (rows.length === 0) return h("p", { class: "quiet" }, none);
  const kind = columns.map((name) => (typeof name === "string" && name.startsWith("#") ? "number" : undefined));
  const head = columns.map((name, at) => h("th", { class: kind[at], scope: "col" }, kind[at] ? name.slice(1) : name));
  const body = rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: kind[at] }, cut(shown(cell))))));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

// A column that users named, whatever its name begins with.
export function column(name) {
  return h("span", {}, name);
}

function cut(cell) {
  if (typeof cell !== "string" || cell.length <= CELL_CHARACTERS_MAX) return cell;
  const whole = () => place.replaceChildren(cell);
  const place = h("span", {}, `${cell.slice(0, CELL_CHARACTERS_MAX)}… `, h("button", { type: "button", onclick: whole }, `All ${cell.length.toLocaleString("en")} characters`));
  return place;
}

export function shown(value) {
  if (typeof Node !== "undefined" && value instanceof Node) return value;
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function tile(name, value) {
  return h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name));
}

export function select(name, options, chosen, onchange) {
  const made = options.map((option) => h("option", { value: option, selected: option === chosen }, option));
  return h("label", {}, name, h("select", { onchange: (event) => onchange(event.target.value) }, made));
}

const STATES = { Healthy: "good", Standby: "good", Initializing: "busy", finished: "good", running: "busy" };

export function state(name) {
  return h("span", { class: STATES[name] || "bad" }, name);
}
