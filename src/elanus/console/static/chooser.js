// The choice of a database and a collection, which several pages begin with. It is kept in the address.

import { call } from "./api.js";
import { h, select } from "./dom.js";

export function address(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export async function chosen(page, parts) {
  const databases = await call("databases/list");
  const database = databases.includes(parts[0]) ? parts[0] : databases.includes("default") ? "default" : databases[0];
  if (database === undefined) return { collection: "", line: h("p", { class: "quiet" }, "There is no database that you may see.") };
  const collections = (await call("collections/list", { dbName: database })).sort();
  const collection = collections.includes(parts[1]) ? parts[1] : collections[0] || "";
  const missing = [[parts[0], database], [parts[1], collection]].find(([asked, used]) => asked && asked !== used);
  const go = (...to) => (location.hash = address(page, ...to));
  const choices = [select("Database", databases, database, (name) => go(name))];
  if (collection) choices.push(select("Collection", collections, collection, (name) => go(database, name)));
  else choices.push(h("span", { class: "quiet" }, "no collections that you may see"));
  return { database, collection, collections, line: h("div", { class: "line" }, choices, missing ? h("span", { class: "bad", role: "alert" }, `There is no ${missing[0]} that you may see.`) : null) };
}
