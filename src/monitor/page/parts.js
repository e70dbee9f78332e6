// What all pages are made of: elements, numbers, tables. Texts of users become text nodes, never markup.
const COLOURS = ["blue", "orange", "green", "red", "violet", "brown", "teal", "pink"];
const SVG = "http://www.w3.org/2000/svg";
const element = id => document.getElementById(id);
const DATA = JSON.parse(element("data").textContent);
element("data").textContent = "";

function make(name, text, attributes = {}) {
  const one = document.createElement(name);
  if (text !== undefined) one.textContent = text;
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  return one;
}
function drawn(name, attributes, text) {
  const one = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  if (text !== undefined) one.textContent = text;
  return one;
}
function inside(parent, ...children) {
  parent.append(...children);
  return parent;
}

function short(value) {
  if (value === undefined || value === null) return "-";
  if (!isFinite(value)) return "not finite";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + "G";
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + "M";
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + "k";
  if (size !== 0 && size < 1e-2) return value.toExponential(2).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(4)));
}
const money = value => value >= 0.01 || value === 0 ? value.toFixed(2) : short(value);
const whole = value => value === undefined || value === null ? "-" : Math.round(value).toLocaleString("en-US");
const percent = (part, all) => all > 0 ? (100 * part / all).toFixed(1) + " %" : "-";
const bytes = count => count === undefined ? "-" : count >= 2 ** 30 ? (count / 2 ** 30).toFixed(1) + " GiB" : (count / 2 ** 20).toFixed(0) + " MiB";
function duration(seconds) {
  if (!isFinite(seconds) || seconds < 0) return "-";
  const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  for (let i = 0; i + 1 < units.length; ++i) {
    const [size, name] = units[i], [next, nextName] = units[i + 1];
    if (seconds >= size) return Math.floor(seconds / size) + name + " " + Math.floor(seconds % size / next) + nextName;
  }
  return seconds >= 10 || seconds === 0 ? seconds.toFixed(0) + "s" : short(seconds) + "s";
}

// A table in a region that scrolls, for narrow screens. A cell is a text, an element, or {text, kind}.
function table(title, head, rows, kind = "") {
  const region = make("div", undefined, { class: "scroll", role: "region", "aria-label": title, tabindex: 0 });
  const top = inside(make("tr"), ...head.map(text => make("th", text, { scope: "col" })));
  const lines = rows.map(cells => inside(make("tr"), ...cells.map((cell, i) => {
    const one = i === 0 ? make("th", undefined, { scope: "row" }) : make("td", undefined, cell.kind ? { class: cell.kind } : {});
    one.append(cell.kind === undefined ? cell : cell.text);
    return one;
  })));
  region.append(inside(make("table", undefined, kind ? { class: kind } : {}), inside(make("thead"), top), inside(make("tbody"), ...lines)));
  return region;
}
// Shows a section made of a source, again only when that has changed; with a source of null, or no children, it is hidden.
const sources = new Map();
function section(id, title, source, children) {
  const text = JSON.stringify(source ?? null);
  if (sources.get(id) === text) return;
  sources.set(id, text);
  let one = element(id);
  if (!one) element("main").append(one = make("section", undefined, { id, class: "card part" }));
  const made = source ? children(source) : [];
  one.hidden = made.length === 0;
  one.replaceChildren(make("h2", title), ...made);
}
// A part that folds; it stays as the reader has left it when its section is made anew.
const folded = new Map();
function fold(title, isOpen, ...children) {
  const summary = make("summary", title), one = inside(make("details"), summary, ...children);
  one.open = folded.get(title) ?? isOpen;
  summary.addEventListener("click", () => folded.set(title, !one.open));
  return one;
}
const textRegion = (text, label) => make("pre", text, { role: "region", "aria-label": label, tabindex: 0 });
function heading(title, texts, state, colour) {
  document.title = title + " - gputrain";
  const badge = make("span", state, { class: "state", style: `color: var(--${colour})` });
  element("head").replaceChildren(make("h1", title), badge, ...texts.filter(text => text).map(text => make("span", text)));
}
function tiles(list) {
  return inside(make("div", undefined, { class: "tiles", id: "tiles" }),
    ...list.map(([name, text]) => inside(make("div", undefined, { class: "card tile" }), make("b", text), name)));
}
