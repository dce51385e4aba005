// A search: by the vector of a row, of a random row, or a pasted one, with a filter, now or as of a moment. Filter and moment are
// checked while they are typed.

import { answer, call, view } from "./api.js";
import { chosen } from "./chooser.js";
import { keyOf, plainFields } from "./collections.js";
import { column, h, table } from "./dom.js";
import { count } from "./format.js";

const RANDOM_ROWS_MAX = 10000;
const CHECK_PAUSE_MS = 300;

export default async function playground(place, parts, life) {
  const { database, collection, line } = await chosen("playground", parts);
  if (!collection) return place.replaceChildren(line);
  const body = { dbName: database, collectionName: collection };
  const found = await call("collections/describe", body);
  if (!life.active) return;
  const vectors = found.fields.filter((field) => field.type.endsWith("Vector")).map((field) => field.name);
  place.replaceChildren(line, ...form(found, body, vectors, parts[2] || "", life));
}

function form(found, body, vectors, rowKey, life) {
  const key = keyOf(found);
  const field = h("select", {}, vectors.map((name) => h("option", { value: name }, name)));
  let exact = null; // the key of a row, until another is typed: a field of one line drops the line breaks of a text
  const id = h("input", { spellcheck: "false", oninput: () => (exact = null) });
  const take = (rowId) => (id.value = exact = String(rowId));
  if (rowKey) take(rowKey);
  const vector = h("textarea", { placeholder: "[0.1, 0.2, …], instead of a row's vector; or a text, for full-text search", spellcheck: "false" });
  const checked = h("p", { class: "quiet", role: "status" });
  const check = liveCheck(body, checked);
  const typed = () => check(filter.value.trim(), asOf.value.trim());
  const filter = h("input", { placeholder: "all rows", spellcheck: "false", oninput: typed });
  const asOf = h("input", { placeholder: "now, or 2026-01-31T12:00:00 (UTC)", size: "32", spellcheck: "false", oninput: typed });
  const limit = h("input", { type: "number", min: "1", max: "1000", value: "10" });
  const params = h("input", { placeholder: '{"ef": 64}', spellcheck: "false" });
  const explained = h("input", { type: "checkbox" });
  const results = h("div", { "aria-live": "polite" });
  const tried = async (work) => {
    try {
      await work();
    } catch (error) {
      if (error.status === 401) return life.failed(error);
      results.replaceChildren(h("div", { class: "error", role: "alert" }, error.message));
    }
  };
  const search = async () => {
    const sent = { ...body, ...query(exact ?? id.value, vector.value, key), annsField: field.value, filter: filter.value.trim(), limit: Number(limit.value), outputFields: plainFields(found) };
    const searchParams = params.value.trim() ? parsed(params.value, "The search parameters") : {};
    if (asOf.value.trim()) searchParams.travel_timestamp = (await view("check", { ...body, asOf: asOf.value.trim() })).timestamp;
    if (Object.keys(searchParams).length) sent.searchParams = { params: searchParams };
    const began = performance.now();
    if (explained.checked) sent.explain = true;
    const whole = await answer("entities/search", sent);
    const hits = whole.data;
    const took = (performance.now() - began).toFixed(1);
    const names = [...new Set([key.name, ...hits.flatMap(Object.keys)])].filter((name) => name !== "distance" && (name !== "id" || key.name === "id"));
    const columns = [["#distance", (hit) => hit.distance], ...names.map((name) => [column(name), (hit) => hit[name]])];
    if (sent.outputFields.includes("distance") && hits.length) {
      const hidden = await fieldOf(hits, "distance");
      columns.push(["field distance", (hit) => hidden.get(String(hit.id))]);
    }
    results.replaceChildren(h("p", { class: "quiet" }, `${hits.length} hits in ${took} ms, the network included`), table(columns.map(([title]) => title), hits.map((hit) => columns.map(([, of]) => of(hit))), "no hits"),
      ...(whole.explain ? [h("h2", {}, "What the search did"), h("pre", {}, whole.explain.text)] : []));
  };
  // The values of a field by the keys of the hits. In a hit the distance takes the place of a field of that name.
  const fieldOf = async (hits, name) => {
    const keys = hits.map((hit) => (key.type === "VarChar" ? JSON.stringify(hit.id) : hit.id));
    const rows = await call("entities/query", { ...body, filter: `${key.name} in [${keys.join(", ")}]`, outputFields: [key.name, name] });
    return new Map(rows.map((row) => [String(row[key.name]), row[name]]));
  };
  const random = async () => {
    const counted = await call("entities/query", { ...body, outputFields: ["count(*)"] });
    const rows = Math.min(Number(counted[0]["count(*)"]), RANDOM_ROWS_MAX);
    if (!rows) throw new Error("the collection has no rows");
    const one = await call("entities/query", { ...body, offset: Math.floor(Math.random() * rows), limit: 1, outputFields: [key.name] });
    if (!one.length) throw new Error("the row was deleted meanwhile: try again");
    take(one[0][key.name]);
    vector.value = "";
    await search();
  };
  const submit = (event) => {
    event.preventDefault();
    tried(search);
  };
  return [
    h("form", { onsubmit: submit },
      h("div", { class: "line" }, h("label", {}, "Vector field", field), h("label", {}, `Vector of the row with ${key.name}`, id),
        h("button", { type: "button", onclick: () => tried(random) }, "Random row"), h("label", {}, "Hits", limit), h("label", {}, "Search parameters", params), h("label", {}, "Explain", explained)),
      h("label", {}, "Vector", vector),
      h("div", { class: "line" }, h("label", { class: "wide" }, "Filter", filter), h("label", {}, "As of", asOf), h("button", {}, "Search")), checked),
    results,
  ];
}

// Shows how many rows match, or what is wrong, once nothing was typed for a while. Only the answer to the last question counts.
function liveCheck(body, place) {
  let asked = 0;
  return async (filter, asOf) => {
    const own = (asked += 1);
    await new Promise((done) => setTimeout(done, CHECK_PAUSE_MS));
    if (own !== asked) return;
    let text, wrong = false;
    try {
      text = `${count((await view("check", { ...body, filter, asOf })).rows)} rows match`;
    } catch (error) {
      [text, wrong] = [error.message, true];
    }
    if (own !== asked) return;
    place.setAttribute("class", wrong ? "bad" : "quiet");
    place.textContent = text;
  };
}

function parsed(text, name) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: not valid JSON, ${error.message}`);
  }
}

// What is searched with: a pasted vector or text if there is one, else the vector of a row.
export function query(id, vector, key) {
  const pasted = vector.trim();
  if (pasted.startsWith("[") || pasted.startsWith("{")) return { data: [parsed(pasted, "The vector")] };
  if (pasted) return { data: [pasted] };
  const asked = key.type === "VarChar" ? id : id.trim(); // a text may begin or end with spaces
  if (!asked) throw new Error(`give the ${key.name} of a row, a vector, or a text`);
  return { ids: [asked] };
}
