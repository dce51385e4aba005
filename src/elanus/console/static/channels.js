// Pchannels with the lag of their ticks over time, and the vchannels of a collection.

import { status, view } from "./api.js";
import { chosen } from "./chooser.js";
import { h, svg, table } from "./dom.js";
import { duration, size, sparkline } from "./format.js";

const KEPT = 60;
const LATE_MS = 2000;

export default async function channels(place, parts, life) {
  const { database, collection, line } = await chosen("channels", parts);
  const of = collection ? await view("vchannels", { dbName: database, collectionName: collection }) : [];
  const lags = new Map();
  await life.every(3000, async () => {
    const found = (await status()).status.channels;
    for (const channel of found) {
      const kept = lags.get(channel.pchannel) || [];
      lags.set(channel.pchannel, [...kept, channel.lag_ms].slice(-KEPT));
    }
    if (!life.active) return;
    if (!place.firstChild) place.append(line, h("div"), h("div"));
    const known = new Map(found.map((channel) => [channel.pchannel, channel]));
    const members = of.map(({ vchannel, pchannel }) => [vchannel, ...lag(known.get(pchannel), lags), pchannel]);
    place.children[1].replaceChildren(h("h2", {}, "Vchannels"), table(["vchannel", "#tick lag", "lag since this page opened", "pchannel"], members, "no collection is chosen"));
    const all = found.map((channel) => [
      channel.pchannel, ...lag(channel, lags), size(channel.log_bytes), channel.vchannels,
      channel.vchannels ? channel.data_node || "none" : "", channel.quarantined ? h("span", { class: "bad" }, channel.quarantined) : 0,
    ]);
    place.children[2].replaceChildren(h("h2", {}, "Pchannels"), table(["pchannel", "#tick lag", "lag since this page opened", "#log", "#vchannels", "data node", "#in quarantine"], all));
  });
}

function lag(channel, lags) {
  if (!channel) return ["unknown", ""];
  const values = lags.get(channel.pchannel);
  const line = svg("svg", { class: "spark", viewBox: "0 0 128 26", role: "img", "aria-label": `the last ${values.length} lags` }, svg("path", { d: sparkline(values, 126, 22) }));
  return [h("span", { class: channel.lag_ms > LATE_MS ? "bad" : "" }, duration(channel.lag_ms)), line];
}
