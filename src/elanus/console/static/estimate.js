// What a collection would take, before it exists: memory of query nodes, disk, the object store, and time to build.

import { call } from "./api.js";
import { h, table } from "./dom.js";
import { count, duration, size } from "./format.js";

const TYPES = ["FloatVector", "Float16Vector", "BFloat16Vector", "Int8Vector", "BinaryVector", "SparseFloatVector"];

export default async function estimate(place) {
  const number = (value) => h("input", { type: "number", min: "1", value });
  const fields = {
    rows: number("1000000"),
    dim: number("768"),
    type: h("select", {}, TYPES.map((name) => h("option", { value: name }, name))),
    indexType: h("input", { value: "HNSW", spellcheck: "false" }),
    metricType: h("input", { placeholder: "the type's own", spellcheck: "false" }),
    params: h("input", { placeholder: '{"M": 16}', spellcheck: "false" }),
    values: h("input", { type: "number", min: "0", value: "0" }),
    otherBytes: h("input", { type: "number", min: "0", value: "8" }),
    replicaNumber: number("1"),
  };
  fields.type.value = TYPES[0];
  const found = h("div", { "aria-live": "polite" });
  const submit = async (event) => {
    event.preventDefault();
    try {
      found.replaceChildren(...drawn(await call("collections/estimate", body(fields))));
    } catch (error) {
      found.replaceChildren(h("div", { class: "error", role: "alert" }, error.message));
    }
  };
  const labels = { rows: "Rows", dim: "Dimension", type: "Type", indexType: "Index", metricType: "Metric", params: "Parameters", values: "Values of a sparse vector", otherBytes: "Other bytes of a row", replicaNumber: "Replicas" };
  place.replaceChildren(
    h("form", { onsubmit: submit }, h("div", { class: "line" }, Object.entries(labels).map(([name, text]) => h("label", {}, text, fields[name])), h("button", {}, "Estimate"))),
    found,
  );
}

function body(fields) {
  const sent = { type: fields.type.value, indexType: fields.indexType.value.trim(), metricType: fields.metricType.value.trim() };
  for (const name of ["rows", "dim", "values", "otherBytes", "replicaNumber"]) sent[name] = Number(fields[name].value);
  if (sent.type === "SparseFloatVector") sent.dim = 0;
  if (fields.params.value.trim()) sent.params = JSON.parse(fields.params.value);
  return sent;
}

function drawn(found) {
  const lines = [
    ["memory to load, in all query nodes", size(found.loadBytes)],
    ["memory of the index, in each replica", size(found.indexMemoryBytes)],
    ["disk of query nodes", size(found.nodeDiskBytes)],
    ["object store: rows", size(found.insertLogBytes)],
    ["object store: index files", size(found.indexFileBytes)],
    ["index builds, one core", duration(1000 * found.buildSeconds)],
  ];
  return [h("p", { class: "quiet" }, `${count(found.rows)} rows in ${count(found.segments)} segments, ${found.indexType}, ${found.metricType}`), table(["", "#size"], lines)];
}
