// A document of which the console's pages use a part, and a program that draws a page in it without a browser.
// Arguments: the directory of the pages, the URL of a server, the address of a page, a button to press, or "", and the label of
// a box to check before, or "label: text" for a field to fill. Before the button "Search" a vector is pasted. "ArrowRight Enter" are
// keys on the picture. "Filter: text" types into a field, and waits for its check.
// Prints the drawn page as JSON: {text, tags, classes, drawn, hash}.

class Element {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, nodes: [], style: {}, listeners: {}, clientWidth: 800, kept: "" });
  }
  setAttribute(name, value) {
    if (name === "style" || name.startsWith("on")) throw new Error(`the policy forbids the attribute ${name}`);
    this.attributes[name] = String(value);
  }
  get value() { return this.kept; }
  set value(value) { this.kept = String(value); }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  append(...nodes) {
    if (nodes.some((node) => node === undefined || node === null || Array.isArray(node))) throw new Error(`not a node in ${this.tag}`);
    this.nodes.push(...nodes);
  }
  replaceChildren(...nodes) { this.nodes = []; this.append(...nodes); }
  get children() { return this.nodes.filter((node) => node instanceof Element); }
  get firstChild() { return this.nodes[0] || null; }
  get hash() { return this.attributes.href || ""; }
  set textContent(text) { this.nodes = [text]; }
  get textContent() { return this.nodes.map((node) => (node instanceof Element ? node.textContent : String(node))).join(" "); }
  focus() {}
  getContext() {
    const calls = (document.drawn = []);
    const kept = (name) => (...values) => { calls.push([name, ...values]); };
    return { scale: kept("scale"), fillRect: kept("fillRect"), strokeRect: kept("strokeRect"), fillText: kept("fillText"), strokeText: kept("strokeText"), measureText: (text) => ({ width: 7 * text.length }), getImageData: kept("get"), putImageData: kept("put") };
  }
  every() { return [this, ...this.children.flatMap((child) => child.every())]; }
}

const [directory, url, address, button, check = ""] = process.argv.slice(2);
const body = new Element("body");
const places = Object.fromEntries(["content", "pages", "account"].map((id) => [id, new Element("div")]));
body.append(...Object.values(places));
globalThis.Node = Element;
globalThis.document = {
  body, hidden: false, drawn: [],
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
  getElementById: (id) => places[id],
  querySelectorAll: () => places.pages.children,
};
globalThis.location = { hash: address };
globalThis.window = { devicePixelRatio: 1, addEventListener() {}, matchMedia: () => ({ addEventListener() {} }) };
globalThis.getComputedStyle = () => ({ color: "black" });
globalThis.requestAnimationFrame = (work) => setTimeout(work, 0);
const real = globalThis.fetch;
let asked = 0;
let ended = 0;
globalThis.fetch = async (path, options) => {
  asked += 1;
  try {
    const answer = await real(`${url}${path}`, options);
    const text = await answer.text();
    return { ok: answer.ok, status: answer.status, json: async () => JSON.parse(text) };
  } finally {
    ended += 1;
  }
};

// A page is drawn when nothing has been asked for during some turns of the loop; its repeated work is still waiting.
async function settled() {
  for (let quiet = 0, before = -1; quiet < 5; before = asked) {
    await new Promise((done) => setTimeout(done, 5));
    quiet = asked === before && ended === asked ? quiet + 1 : 0;
  }
}

await import(`file://${directory}/main.js`);
await settled();
const nodes = body.every();
const typed = (said) => {
  const [label, ...rest] = said.split(": ");
  const field = nodes.find((node) => node.tag === "label" && node.textContent.startsWith(label)).children[0];
  field.value = rest.join(": ");
  return field;
};
if (check.includes(": ")) typed(check);
else if (check) nodes.find((node) => node.tag === "label" && node.textContent.startsWith(check)).children[0].checked = true;
if (button === "Estimate") {
  nodes.find((node) => node.tag === "form").listeners.submit({ preventDefault() {} });
} else if (button === "Search") {
  nodes.find((node) => node.tag === "textarea").value = "[1, 1]";
  nodes.find((node) => node.tag === "form").listeners.submit({ preventDefault() {} });
} else if (button.startsWith("Arrow")) {
  const canvas = nodes.find((node) => node.tag === "canvas");
  for (const key of button.split(" ")) canvas.listeners.keydown({ key, preventDefault() {} });
} else if (button.startsWith("Filter: ")) {
  const before = asked;
  typed(button).listeners.input();
  while (asked === before) await new Promise((done) => setTimeout(done, 5));
} else if (button) {
  nodes.find((node) => node.tag === "button" && node.textContent === button).listeners.click();
}
await settled();
const tags = body.every().map((node) => node.tag);
const classes = body.every().map((node) => node.attributes.class).filter(Boolean);
process.stdout.write(JSON.stringify({ text: places.content.textContent, tags, classes, drawn: document.drawn.map(([name]) => name), hash: location.hash }));
process.exit(0);
