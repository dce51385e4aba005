// The jobs of the ledger on a line of time, and as a table.

import { status } from "./api.js";
import { h, state, svg, table } from "./dom.js";
import { count, duration, size } from "./format.js";

const WIDTH = 1000;
const ROW = 16;
const COLORS = { finished: "#3d9a5f", running: "#3d86c6", failed: "#d0504a", lost: "#d0504a", cancelled: "#d0a030" };

export default async function jobs(place, parts, life) {
  let before = "";
  await life.every(3000, async () => {
    const found = (await status()).status.jobs;
    const text = JSON.stringify(found);
    if (!life.active || text === before) return;
    before = text;
    place.replaceChildren(...drawn(found, Date.now()));
  });
}

function drawn(found, nowMs) {
  const latest = [...found].reverse();
  const lines = latest.map((job) => [
    job.job_id, job.kind, state(job.state), job.started.replace("T", " ").slice(0, 19), duration(job.duration_ms),
    job.state === "running" ? `${Math.round(job.percent)} %` : "", count(job.rows), size(job.bytes), job.attempt, job.cause,
    h("span", { class: "bad" }, job.error.split("\n")[0]),
  ]);
  const columns = ["job", "kind", "state", "started (UTC)", "#took", "#done", "#rows", "#size", "#attempt", "cause", "error"];
  return [...timeline(latest, nowMs), table(columns, lines, "No job has run yet: flushes and index builds appear here.")];
}

// Where the bars of jobs are, in parts of the time from the first start to now: [job, begin, length] each.
export function bars(found, nowMs) {
  const started = found.filter((job) => job.started).map((job) => [job, Date.parse(job.started)]);
  const first = Math.min(...started.map(([, atMs]) => atMs));
  const span = Math.max(1, nowMs - first);
  return started.map(([job, atMs]) => [job, (atMs - first) / span, Math.min(1, job.duration_ms / span)]);
}

function timeline(found, nowMs) {
  const placed = bars(found, nowMs);
  if (!placed.length) return [];
  const shapes = placed.map(([job, begin, length], at) => {
    const box = { x: begin * (WIDTH - 4), y: at * ROW + 2, width: Math.max(4, length * WIDTH), height: ROW - 4, rx: 2, fill: COLORS[job.state] || "#8a939d" };
    return svg("rect", box, svg("title", {}, `${job.kind} ${job.job_id}: ${job.state}, ${duration(job.duration_ms)}, ${job.cause}`));
  });
  const height = placed.length * ROW + 2;
  const begin = new Date(Math.min(...placed.map(([job]) => Date.parse(job.started)))).toISOString().replace("T", " ").slice(0, 19);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: "100%", height, preserveAspectRatio: "none", role: "img", "aria-label": "The jobs by time; the table has the same" }, shapes);
  return [picture, h("p", { class: "ends quiet" }, h("span", {}, begin), h("span", {}, "each bar is a job, in the order of the table"), h("span", {}, "now"))];
}
