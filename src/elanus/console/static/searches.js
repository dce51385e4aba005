// How good and how quick live searches are: the recall that was measured, and the slow reads.

import { status } from "./api.js";
import { h, table } from "./dom.js";
import { count } from "./format.js";

export default async function searches(place, parts, life) {
  await life.every(5000, async () => {
    const found = await status();
    if (life.active) place.replaceChildren(...drawn(found.status.recalls, found.slow));
  });
}

function drawn(recalls, slow) {
  const measured = recalls.map((one) => [
    `${one.collection}.${one.field}`, one.index, one.band, one.recall.toFixed(3), `${one.low.toFixed(3)} to ${one.high.toFixed(3)}`, count(one.samples), h("span", { class: "bad" }, one.cause),
  ]);
  const reads = slow.map((one) => h("details", {},
    h("summary", {}, `${new Date(one.at_ms).toISOString()} · ${one.request} on ${one.database}.${one.collection} · ${one.ms.toFixed(1)} ms${one.code ? ` · code ${one.code}` : ""}`),
    h("pre", {}, one.text || "not followed: no read had been slow in the minute before")));
  return [
    h("h2", {}, "Measured recall"),
    table(["field", "index", "rows after the filter", "#recall", "#interval", "#samples", "cause"], measured, "no search has been measured"),
    h("h2", {}, "Slow reads"),
    ...(reads.length ? reads : [h("p", { class: "quiet" }, "none")]),
  ];
}
