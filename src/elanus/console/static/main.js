// The page: sign-in, navigation, and the life of the page that is shown.

import { Failure, session, signIn, signOut } from "./api.js";
import { h } from "./dom.js";
import channels from "./channels.js";
import collections from "./collections.js";
import doctor from "./doctor.js";
import estimate from "./estimate.js";
import jobs from "./jobs.js";
import overview from "./overview.js";
import playground from "./playground.js";
import projection from "./projection.js";
import searches from "./searches.js";
import segments from "./segments.js";
import users from "./users.js";

const PAGES = { overview, collections, segments, jobs, playground, projection, searches, estimate, channels, doctor, users };
const content = document.getElementById("content");
let shown = { active: false };

// A page gets a place to draw in, the parts of its address, and its life: `active` turns false when another page
// is shown, and `every` repeats work while the page is visible. Nothing is asked for while nobody looks.
function life() {
  const made = { active: true };
  made.failed = (error) => {
    if (!made.active) return;
    if (error instanceof Failure && error.status === 401) return void start();
    const again = h("button", { onclick: show }, "Try again");
    made.place.replaceChildren(h("div", { class: "error", role: "alert" }, error.message), again);
  };
  made.every = async (pauseMs, work) => {
    while (made.active) {
      try {
        if (!document.hidden) await work();
      } catch (error) {
        return made.failed(error);
      }
      await new Promise((done) => setTimeout(done, pauseMs));
    }
  };
  return made;
}

async function show() {
  const [name, ...parts] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const page = Object.hasOwn(PAGES, name) ? name : "overview";
  shown.active = false;
  const now = (shown = life());
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${page} · Elanus`;
  now.place = h("div", { "aria-live": "off" });
  content.replaceChildren(h("h1", {}, page[0].toUpperCase() + page.slice(1)), now.place);
  try {
    await PAGES[page](now.place, parts, now);
  } catch (error) {
    now.failed(error);
  }
}

function showPages(facts) {
  const links = Object.keys(PAGES).map((name) => h("a", { href: `#/${name}` }, name[0].toUpperCase() + name.slice(1)));
  document.getElementById("pages").replaceChildren(...links);
  const leave = async () => {
    await signOut();
    await start();
  };
  const account = facts.signInNeeded ? [facts.user, " ", h("button", { onclick: leave }, "Sign out")] : [];
  document.getElementById("account").replaceChildren(h("span", { class: "quiet" }, facts.version), " ", ...account);
  window.onhashchange = show;
  show();
}

function showSignIn() {
  shown.active = false;
  window.onhashchange = null;
  document.getElementById("pages").replaceChildren();
  document.getElementById("account").replaceChildren();
  const user = h("input", { name: "user", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const problem = h("p", { class: "bad", role: "alert" });
  const enter = async (event) => {
    event.preventDefault();
    try {
      showPages(await signIn(user.value, password.value));
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  const fields = [h("label", {}, "User", user), h("label", {}, "Password", password)];
  content.replaceChildren(h("form", { class: "login", onsubmit: enter }, h("h1", {}, "Sign in"), fields, h("button", {}, "Sign in"), problem));
  user.focus();
}

async function start() {
  try {
    showPages(await session());
  } catch (error) {
    if (error.status === 401) showSignIn();
    else content.replaceChildren(h("div", { class: "error", role: "alert" }, error.message));
  }
}

start();
