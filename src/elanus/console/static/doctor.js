// What is wrong with the server, by the rules of `elanus doctor`, and what to do.

import { findings } from "./api.js";
import { h } from "./dom.js";

export default async function doctor(place, parts, life) {
  await life.every(10000, async () => {
    const found = await findings();
    if (life.active) place.replaceChildren(...(found.length ? found.map(drawn) : [h("p", { class: "good" }, "No rule finds anything wrong.")]));
  });
}

function drawn(one) {
  const facts = [["Evidence", one.evidence], ["What to do", one.remedy], ["Since", one.since]].filter(([, text]) => text);
  return h("section", {},
    h("h2", {}, h("span", { class: one.severity === "critical" ? "bad" : "busy" }, one.severity), ` ${one.finding}`),
    h("dl", {}, facts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
    h("p", { class: "quiet" }, one.rule));
}
