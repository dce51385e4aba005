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
const RETRY_MS = 3000;
const ENDED = "The session has ended: sign in again.";
const content = document.getElementById("content");
let shown = { active: false };

// A page gets a place to draw in, the parts of its address, and its life: `active` turns false when another page
// is shown, and `every` repeats work while the page is visible. Nothing is asked for while nobody looks. A page that paints
// sets `repaint`, which is called when the window has another size or color scheme.
function life() {
  const made = { active: true };
  made.failed = (error) => {
    if (!made.active) return;
    if (error instanceof Failure && error.status === 401) return void start(ENDED);
    made.place.replaceChildren(...problem(error, () => made.active && show()));
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

// What went wrong, and a way to try again. A server that does not answer is asked again after a while, as it may be restarting.
function problem(error, again) {
  const status = error instanceof Failure ? error.status : undefined;
  if (status === 403) {
    return [h("div", { class: "error", role: "alert" }, "Your user may not see this page. The other pages show what it may see."), h("p", { class: "quiet" }, error.message)];
  }
  const text = h("div", { class: "error", role: "alert" }, error.message);
  if (status !== 0) return [text, h("button", { onclick: again }, "Try again")];
  setTimeout(again, RETRY_MS);
  return [text, h("p", { class: "quiet" }, "This page tries again by itself.")];
}

// The parts of the address; none of one that somebody typed wrong.
function addressed() {
  try {
    return location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  } catch {
    return [];
  }
}

async function show() {
  const [name, ...parts] = addressed();
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
    await signOut().catch(() => undefined); // if the server does not answer, the next line says so
    await start();
  };
  const account = facts.signInNeeded ? [facts.user, " ", h("button", { onclick: leave }, "Sign out")] : [];
  document.getElementById("account").replaceChildren(h("span", { class: "quiet" }, facts.version), " ", ...account);
  window.onhashchange = show;
  show();
}

function showSignIn(note) {
  shown.active = false;
  window.onhashchange = null;
  document.getElementById("pages").replaceChildren();
  document.getElementById("account").replaceChildren();
  const user = h("input", { name: "user", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const wrong = h("p", { class: "bad", role: "alert" }, note);
  const enter = async (event) => {
    event.preventDefault();
    try {
      showPages(await signIn(user.value, password.value));
    } catch (error) {
      wrong.textContent = error.message;
    }
  };
  const fields = [h("label", {}, "User", user), h("label", {}, "Password", password)];
  content.replaceChildren(h("form", { class: "login", onsubmit: enter }, h("h1", {}, "Sign in"), fields, h("button", {}, "Sign in"), wrong));
  user.focus();
}

async function start(note = "") {
  try {
    showPages(await session());
  } catch (error) {
    if (error.status === 401) showSignIn(note);
    else content.replaceChildren(...problem(error, () => start(note)));
  }
}

const repaint = () => shown.repaint?.();
window.addEventListener("resize", repaint);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
start();
