// The page of a run: while it goes on, by "state" of its own server; afterwards, with its data inside.
const PHASES = { load: "red", copy: "brown", forward: "green", backward: "blue", communication: "faint", optimizer: "orange", graph: "blue" };
// Metrics that share a chart; each other metric has its own.
const GROUPS = [
  ["Loss", /\/loss$/],
  ["Validation in %", /^val\/(top\d+|(pixel_)?accuracy|miou|recall_at_\d+)$/],
  ["Learning rate", /^train\/lr$/],
  ["Gradient norm", /^train\/grad_norm$/],
  ["Rate", /_per_second$/],
  ["Time of a step in seconds", /^time\/.*_seconds$/],
  ["Time so far in seconds", /^time\/.*_seconds_total$/],
];
const view = new View(), charts = new Map(), live = new Map();
const main = element("main"), grid = make("div", undefined, { class: "grid" });

const names = state => (state.curves ? Object.keys(state.curves.metrics) : [...live.keys()]).filter(name => name !== "time/left_seconds");
function showCharts(state) {
  const groups = new Map();
  for (const name of names(state)) {
    const title = GROUPS.find(([, pattern]) => pattern.test(name))?.[0] ?? name;
    if (!groups.has(title)) groups.set(title, []);
    groups.get(title).push(name);
  }
  const order = title => {  // other metrics of evaluations come behind those in %, all others last
    const group = GROUPS.findIndex(one => one[0] === title);
    return group >= 0 ? group : /^(val|test)\//.test(title) ? 1.5 : GROUPS.length;
  };
  const titles = [...groups.keys()].sort((one, other) => order(one) - order(other) || one.localeCompare(other));
  for (const title of titles) {
    if (!charts.has(title)) charts.set(title, new Chart(title, view));
    charts.get(title).set(groups.get(title).sort().map((name, colour) => {
      const curve = state.curves ? curveOf(state.curves, name) : live.get(name);
      return Object.assign(curve, { name, colour });
    }));
  }
  const shown = titles.map(title => charts.get(title).element);
  if (shown.length !== grid.children.length) grid.replaceChildren(...shown);
}
function addPoints(points) {
  for (const { step, metrics } of points) for (const [name, value] of Object.entries(metrics)) {
    if (!live.has(name)) live.set(name, { steps: [], values: [] });
    const { steps, values } = live.get(name);
    while (steps.length > 0 && steps[steps.length - 1] >= step) { steps.pop(); values.pop(); }  // it went back to a checkpoint
    steps.push(step);
    values.push(value);
  }
}

function showTiles(state) {
  const { values } = state, steps = values.planned_steps, isText = values["train/tokens_per_second"] > 0, seconds = values["time/step_seconds"];
  const list = [
    ["step", whole(values.steps_total) + (steps > 0 ? " / " + whole(steps) : "")],
    ["epoch", short(values.epoch)],
    ["loss", short(values["train/loss"])],
    [isText ? "tokens a second" : "samples a second", short(isText ? values["train/tokens_per_second"] : values["train/samples_per_second"])],
    ["step takes", seconds === undefined ? "-" : short(seconds * 1000) + " ms"],
    ["waits for data", values["time/stall_share"] === undefined ? "-" : percent(values["time/stall_share"], 1)],
    ["left", steps > 0 && seconds && !state.attempts ? duration((steps - values.steps_total) * seconds) : "-"],
    ["of the peak rate", values["train/mfu"] === undefined ? "-" : percent(values["train/mfu"], 1)],
    ["cost", values.cost_total > 0 ? money(values.cost_total) + (values.cost_limit > 0 ? " of " + short(values.cost_limit) : "") : "-"],
    ["cost of the whole run", values.cost_expected > 0 && !state.attempts ? "about " + money(values.cost_expected) : "-"],
    ["attempt", short(values.attempt)],
  ].filter(([, text]) => text !== "-");
  element("tiles").replaceWith(tiles(list.concat(state.tiles ?? [])));
}

function phaseBar(metrics) {
  const bar = make("div", undefined, { class: "bar" }), seconds = name => metrics["phase/" + name] || 0;
  const all = Object.keys(PHASES).reduce((sum, name) => sum + seconds(name), 0), told = [];
  for (const [name, colour] of Object.entries(PHASES)) {
    if (seconds(name) === 0) continue;
    told.push(`${name} ${percent(seconds(name), all)}`);
    bar.append(make("div", undefined, { style: `background: var(--${colour}); width: ${100 * seconds(name) / all}%`, title: told[told.length - 1] }));
  }
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", told.join(", ") || "no times yet");
  return bar;
}
function showRanks(ranks) {
  const gpu = one => one["gpu/temperature_celsius"] === undefined ? "-" : `${short(one["gpu/temperature_celsius"])} °C  ${short(one["gpu/power_watts"])} W  ${short(100 * one["gpu/utilization_ratio"])} %`;
  const memory = one => one["host/memory_used_bytes"] === undefined ? "-" : `${bytes(one["host/memory_used_bytes"])} of ${bytes(one["host/memory_total_bytes"])}`;
  const rows = ranks.map(({ place, metrics: one }, rank) => [String(rank), place, bytes(one["rank/memory_bytes"]), gpu(one), one["host/cpu_ratio"] === undefined ? "-" : percent(one["host/cpu_ratio"], 1), memory(one), phaseBar(one)]);
  const key = make("div", undefined, { class: "key" });
  for (const [name, colour] of Object.entries(PHASES))
    if (ranks.some(rank => rank.metrics["phase/" + name])) key.append(inside(make("span"), make("i", undefined, { style: `background: var(--${colour})` }), name));
  return [table("Ranks", ["rank", "place", "memory", "GPU", "CPU of the host", "memory of the host", "time by phase"], rows), key];
}

function showSettings({ changed, others }) {
  const rows = list => Object.entries(list).map(([key, value]) => [key, { text: value, kind: "text" }]), head = ["key", "value"];
  return [rows(changed).length > 0 ? table("Settings that differ from the defaults", head, rows(changed)) : make("p", "All settings have their defaults."),
    fold(`${rows(others).length} settings with their defaults`, false, table("Settings with their defaults", head, rows(others)))];
}
function showTexts(texts) {
  const prompts = new Map();  // the texts of each prompt, the newest first
  for (const one of texts) prompts.set(one.name + one.prompt, [one, ...prompts.get(one.name + one.prompt) ?? []]);
  return [...prompts.values()].map(all => {
    const [{ prompt, is_answer }] = all, written = all.map(one => `step ${whole(one.step)}\n` + (is_answer ? one.text : prompt + one.text));
    return fold(prompt.length > 80 ? prompt.slice(0, 79) + "…" : prompt, true, ...(is_answer && prompt.length > 80 ? [make("p", prompt)] : []), textRegion(written.join("\n\n"), "what the model writes to: " + prompt));
  });
}
function showAttempts(attempts) {
  return attempts.length < 2 ? [] : [table("Attempts", ["begin", "time", "steps", "end"], attempts.map(one => [new Date(one.begin * 1000).toLocaleString(), duration(one.seconds), whole(one.first_step) + " to " + whole(one.last_step), { text: one.end, kind: "text" }]))];
}
function showEvents(events) {
  return events.length === 0 ? [] : [table("Events", ["time", "step", "what"], events.slice(-50).reverse().map(one => [new Date(one.time * 1000).toLocaleString(), whole(one.step), { text: one.text, kind: "text" }]))];
}
function showLog(text) {
  const before = element("log")?.querySelector("pre"), isAtEnd = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 4, place = before?.scrollTop;
  section("log", "Log of rank 0", text || null, () => [textRegion(text, "Log of rank 0")]);
  const lines = element("log").querySelector("pre");
  if (lines && lines !== before) lines.scrollTop = isAtEnd ? lines.scrollHeight : place;
}

function show(state) {
  const colour = { training: "green", done: "blue", failed: "red" }[state.state] ?? "orange";
  heading(state.name, [state.run_id, state.folder, new Date(state.time * 1000).toLocaleString()], state.state, colour);
  element("alerts").replaceChildren(...state.alerts.map(text => make("div", text, { class: "alert" })));
  showTiles(state);
  showCharts(state);
  if (state.evaluation !== undefined) showEvaluation(state.evaluation);
  if (state.texts?.length > 0) section("texts", "Texts that the model writes", state.texts, showTexts);
  section("ranks", "Ranks", state.ranks, showRanks);
  if (state.settings) section("settings", "Settings", state.settings, showSettings);
  section("attempts", "Attempts", state.attempts ?? [], showAttempts);
  section("events", "Events", state.events, showEvents);
  if (state.log !== undefined) showLog(state.log);
}

// Asks for what is new every two seconds.
const known = { number: 0, texts: [] };
async function follow() {
  try {
    const state = await (await fetch("state?after=" + known.number)).json();
    if (state.newest < known.number) return location.reload();  // another attempt, which counts anew
    addPoints(state.points);
    known.texts.push(...state.texts);
    if (known.number === 0 || state.points.some(point => point.kind === "eval")) state.evaluation = await (await fetch("evaluation")).json();
    known.number = state.newest;
    state.log = await (await fetch("log")).text();
    show({ ...state, texts: known.texts });
  } catch (failure) {
    heading(element("head").querySelector("h1").textContent, ["The page asks again every two seconds."], "no answer", "red");
  }
  setTimeout(follow, 2000);
}

main.append(make("div", undefined, { id: "alerts", role: "alert" }), make("div", undefined, { id: "tiles" }), make("h2", "Curves", { class: "hidden-text" }), view.tools(), grid);
for (const id of ["classes", "masks", "confusion", "worst", "texts", "ranks", "settings", "attempts", "events", "log"]) section(id, "", undefined, () => []);
if (DATA) show(DATA); else follow();
