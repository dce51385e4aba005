// Users, their roles, and the privileges of roles; users can be added, changed and dropped.

import { call, session } from "./api.js";
import { h, table } from "./dom.js";

export default async function users(place, parts, life) {
  const { signInNeeded } = await session();
  const note = signInNeeded ? null : h("p", { class: "quiet" }, "Clients need not sign in: proxy.authorization_enabled is off.");
  const again = async () => {
    const [names, roles] = await Promise.all([call("users/list"), call("roles/list")]);
    const [of, grants] = await Promise.all([
      Promise.all(names.map((userName) => call("users/describe", { userName }))),
      Promise.all(roles.map((roleName) => call("roles/describe", { roleName, dbName: "*" }))),
    ]);
    if (!life.active) return;
    const held = roles.flatMap((role, at) => grants[at].map((grant) => [role, grant.privilege, grant.objectType, grant.dbName, grant.objectName]));
    const lines = names.map((name, at) => [name, of[at].join(", "), actions(name, of[at], roles, tried)]);
    place.replaceChildren(...[note, problem,
      h("h2", {}, "Users"), table(["user", "roles", "actions"], lines), added(tried),
      h("h2", {}, "Privileges"), table(["role", "privilege", "object type", "database", "object"], held, "no grants")].filter(Boolean));
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
