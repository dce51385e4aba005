// Roles, rates and memory of the server.

import { status } from "./api.js";
import { h, state, table, tile } from "./dom.js";
import { count, duration, rate, size } from "./format.js";

const RATES = [["rowsInserted", "rows inserted per second"], ["rowsDeleted", "rows deleted per second"], ["searchVectors", "searches per second"]];

export default async function overview(place, parts, life) {
  let before = null;
  await life.every(5000, async () => {
    const found = await status();
    const after = { atMs: found.atMs, figures: found.figures };
    if (before && after.atMs === before.atMs) return; // another page's answer: no time has passed
    if (life.active) place.replaceChildren(...drawn(found.status, before, after));
    before = after;
  });
}

function drawn(found, before, after) {
  const { figures } = after;
  const memory = figures.memoryBytes === undefined ? "unknown" : size(figures.memoryBytes);
  const rates = RATES.map(([name, text]) => {
    const value = rate(before, after, name);
    return tile(text, value === null ? "…" : count(Math.round(value)));
  });
  const load = rate(before, after, "cpuSeconds");
  const tiles = [
    tile("up", duration(found.uptime_s * 1000)),
    ...rates,
    tile("processors in use", load === null ? "…" : load.toFixed(2)),
    tile(`memory, of ${size(figures.machineMemoryBytes)}`, memory),
    tile("memory of growing rows", size(figures.growingBytes || 0)),
    tile("size of the log", size(figures.logBytes || 0)),
    tile("longest pause of the server", duration(found.loop_lag_ms)),
  ];
  const pipeline = found.pipeline;
  const roles = found.roles.map((role) => [role.role, state(role.state), role.detail]);
  roles.push(["pipeline", state(pipeline.state), `${pipeline.pid ? `pid ${pipeline.pid}, ` : ""}${pipeline.restarts} restarts${pipeline.spark ? `, Spark ${pipeline.spark}` : ""}`]);
  const loads = found.collections.map((one) => [
    h("a", { href: `#/collections/${encodeURIComponent(one.database)}/${encodeURIComponent(one.name)}` }, `${one.database}.${one.name}`),
    count(one.rows),
    one.loaded_percent === null ? "no" : `${one.loaded_percent} %`,
    Object.entries(one.segments).map(([name, number]) => `${number} ${name.toLowerCase()}`).join(", "),
    h("span", { class: "bad" }, [...(one.unreadable_logs || []), ...(one.unreadable || [])].join("; ")),
  ]);
  const groups = found.resource_groups.map((one) => [one.name, one.nodes.join(", "), one.missing_nodes, one.replicas]);
  const garbage = found.garbage;
  return [
    h("div", { class: "tiles" }, tiles),
    h("h2", {}, "Roles"), table(["role", "state", "detail"], roles),
    h("h2", {}, "Collections"), table(["collection", "#rows", "loaded", "segments", "problems"], loads, "no collections"),
    h("h2", {}, "Resource groups"), table(["group", "nodes", "#missing nodes", "#replicas"], groups),
    h("h2", {}, "Garbage collection"),
    h("p", {}, `${garbage.state}, ${size(garbage.reclaimed_bytes)} reclaimed, ${size(garbage.waiting_bytes)} dropped and still there`,
      garbage.error ? h("span", { class: "bad" }, ` ${garbage.error}`) : null),
  ];
}
