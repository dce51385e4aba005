// Users, their roles and API keys, and the privileges of roles, which can be changed; and the latest records of the audit log.

import { auditRecords, call, session, view } from "./api.js";
import { h, table } from "./dom.js";

export default async function users(place, parts, life) {
  const { signInNeeded } = await session();
  const note = signInNeeded ? null : h("p", { class: "quiet" }, "Clients need not sign in: proxy.authorization_enabled is off.");
  const again = async () => {
    const [{ users: found, roles, grants }, keys, records] = await Promise.all([view("users"), call("api_keys/list"), audited()]);
    if (!life.active) return;
    const lines = found.map((user) => [user.name, user.roles.join(", "), actions(user.name, user.roles, roles, tried)]);
    place.replaceChildren(...[note, problem,
      h("h2", {}, "Users and roles"), table(["user", "roles", "actions"], lines), added(tried),
      h("h2", {}, "API keys"), table(["key", "user", "expires", "roles", "databases", "description", "actions"], keys.map((key) => keyLine(key, tried)), "no keys"),
      h("h2", {}, "Privileges"), table(["role", "privilege", "object type", "database", "object"], grants, "no grants"),
      h("h2", {}, "Audit log"), records].filter(Boolean));
  };
  const problem = h("div", { role: "alert", class: "bad" });
  const tried = async (path, body) => {
    problem.textContent = "";
    try {
      await call(path, body);
      await again();
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  await again();
}

function keyLine(key, tried) {
  const drop = () => confirm(`Drop the key ${key.keyId} of ${key.userName}?`) && tried("api_keys/drop", { userName: key.userName, keyId: key.keyId });
  const expires = key.expiresMs ? new Date(key.expiresMs).toISOString().slice(0, 10) : "never";
  return [key.keyId, key.userName, expires, key.roleNames.join(", ") || "all", key.dbNames.join(", ") || "all", key.description, h("button", { onclick: drop }, "Drop")];
}

// The records, or why there are none: who may see users need not have the right to see what everybody did.
async function audited() {
  try {
    const records = await auditRecords();
    if (records === null) return h("p", { class: "quiet" }, "The server keeps none: audit.enabled is off.");
    const lines = records.map((one) => [one.time.replace("T", " ").slice(0, 19), one.key ? `${one.user}, key ${one.key}` : one.user, one.origin, one.operation, `${one.database}${one.objects.length ? `: ${one.objects.join(", ")}` : ""}`, one.decision === "refused" ? h("span", { class: "bad" }, "refused") : one.decision, one.code || ""]);
    return table(["time (UTC)", "user", "from", "operation", "on", "decision", "#code"], lines, "no records");
  } catch (error) {
    if (error.status === 401) throw error;
    return h("p", { class: "quiet" }, error.message);
  }
}

function actions(userName, held, roles, tried) {
  const free = roles.filter((role) => !held.includes(role) && role !== "public");
  const role = (label, names, path) => names.length ? chosenRole(label, names, (roleName) => tried(path, { userName, roleName })) : null;
  const drop = () => confirm(`Drop the user ${userName}?`) && tried("users/drop", { userName });
  return h("div", { class: "line" }, role("Give a role…", free, "users/grant_role"), role("Take a role…", held.filter((name) => name !== "public"), "users/revoke_role"),
    userName === "root" ? null : h("button", { onclick: drop }, "Drop"));
}

function chosenRole(label, names, work) {
  const change = (event) => event.target.value && work(event.target.value);
  return h("select", { "aria-label": label, onchange: change }, h("option", { value: "" }, label), names.map((name) => h("option", { value: name }, name)));
}

function added(tried) {
  const user = h("input", { required: true, autocomplete: "off" });
  const password = h("input", { type: "password", required: true, autocomplete: "new-password" });
  const add = (event) => {
    event.preventDefault();
    tried("users/create", { userName: user.value, password: password.value });
  };
  return h("form", { class: "line", onsubmit: add }, h("label", {}, "New user", user), h("label", {}, "Password", password), h("button", {}, "Add"));
}
