// A collection: its schema, indexes, partitions, properties, and its rows by page.

import { call } from "./api.js";
import { address, chosen } from "./chooser.js";
import { column, h, table } from "./dom.js";
import { count, plural } from "./format.js";

const PAGE_ROWS = 25;

export default async function collections(place, parts, life) {
  const { database, collection, collections: names, line } = await chosen("collections", parts);
  if (!collection) return place.replaceChildren(line);
  const links = names.map((name) => h("li", {}, h("a", { href: address("collections", database, name), "aria-current": name === collection ? "true" : null }, name)));
  const detail = h("div");
  place.replaceChildren(line, names.length > 1 ? h("div", { class: "split" }, h("ul", { class: "list" }, links), detail) : detail);
  const body = { dbName: database, collectionName: collection };
  const found = await call("collections/describe", body);
  const [partitions, indexes] = await Promise.all([call("partitions/list", body), described(found, body)]);
  if (!life.active) return;
  detail.replaceChildren(...schema(found), ...below(found, indexes, partitions), h("h2", {}, "Rows"), ...rows(found, body, life));
}

function described(found, body) {
  return Promise.all(found.indexes.map(async (index) => (await call("indexes/describe", { ...body, indexName: index.indexName }))[0]));
}

function schema(found) {
  const facts = [`id ${found.collectionID}`, found.load.replace("LoadState", ""), plural(found.shardsNum, "shard"), `consistency ${found.consistencyLevel}`];
  if (found.enableDynamicField) facts.push("dynamic fields");
  if (found.aliases.length) facts.push(`aliases ${found.aliases.join(", ")}`);
  const fields = found.fields.map((field) => {
    const marks = ["primaryKey", "autoId", "partitionKey", "clusteringKey", "nullable"].filter((mark) => field[mark]);
    const params = (field.params || []).map(({ key, value }) => `${key}=${value}`);
    return [field.name, field.type, [...marks, ...params].join(", "), field.description];
  });
  return [h("h2", {}, found.collectionName), h("p", {}, facts.join(" · ")), found.description ? h("p", { class: "quiet" }, found.description) : "", table(["field", "type", "properties", "description"], fields)];
}

function below(found, indexes, partitions) {
  const lines = indexes.map((one) => [one.indexName, one.fieldName, one.indexType, one.metricType, one.indexState, `${count(one.indexedRows)} of ${count(one.totalRows)}`, one.failReason]);
  return [
    h("h2", {}, "Indexes"), table(["index", "field", "type", "metric", "state", "#rows indexed", "problem"], lines, "no indexes"),
    h("h2", {}, "Partitions"), h("p", {}, partitions.join(", ")),
    h("h2", {}, "Properties"), table(["property", "value"], (found.properties || []).map(({ key, value }) => [key, value]), "none are set"),
  ];
}

// A literal of the filter language. Large integers arrive as texts, so that no digit is lost.
export function literal(type, value) {
  return type === "VarChar" ? JSON.stringify(value) : String(value);
}

export function keyOf(found) {
  return found.fields.find((field) => field.primaryKey);
}

export function plainFields(found) {
  const names = found.fields.filter((field) => !field.type.endsWith("Vector")).map((field) => field.name);
  return found.enableDynamicField ? [...names, "$meta"] : names;
}

// Pages are read by key: a page costs the same however far it is, and rows that come meanwhile move none.
function rows(found, body, life) {
  const key = keyOf(found);
  const filter = h("input", { placeholder: "all rows", spellcheck: "false", "aria-label": "Filter" });
  const place = h("div");
  let begins = [""];
  let last = null;
  const forward = () => {
    begins.push(`${key.name} > ${literal(key.type, last[key.name])}`);
    show();
  };
  const backward = () => {
    begins.pop();
    show();
  };
  const back = h("button", { type: "button", onclick: backward }, "Previous");
  const next = h("button", { type: "button", onclick: forward }, "Next");
  const show = async () => {
    const begin = begins.at(-1);
    const filters = [filter.value.trim() && `(${filter.value.trim()})`, begin].filter(Boolean);
    let page;
    try {
      page = await call("entities/query", { ...body, filter: filters.join(" and "), limit: PAGE_ROWS, outputFields: plainFields(found) });
    } catch (error) {
      if (error.status === 401) return life.failed(error);
      return place.replaceChildren(h("div", { class: "error", role: "alert" }, error.message));
    }
    const names = [...new Set(page.flatMap(Object.keys))]; // rows with dynamic fields have different keys
    place.replaceChildren(table(names.map(column), page.map((row) => names.map((name) => row[name])), "no rows"));
    back.disabled = begins.length === 1;
    next.disabled = page.length < PAGE_ROWS;
    last = page.at(-1);
  };
  const search = (event) => {
    event.preventDefault();
    begins = [""];
    show();
  };
  if (found.load !== "LoadStateLoaded") return [h("p", { class: "quiet" }, "Rows can be read when the collection is loaded.")];
  show();
  return [h("form", { class: "line", onsubmit: search }, h("label", { class: "wide" }, "Filter", filter), h("button", {}, "Show"), back, next), place];
}
