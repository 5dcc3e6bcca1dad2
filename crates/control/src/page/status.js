// The figures that the page shows, and the connection to the tracker.

const $ = (id) => document.getElementById(id);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const total = (counts) => sum(Object.values(counts));

/** The state of the page. `before` is the snapshot that rates refer to. */
const state = { stats: null, before: null, history: null, range: "hour", failures: 0 };

// ---- The theme: that of the system, or the one that was chosen in this tab.

const THEMES = ["system", "light", "dark"];
const systemTheme = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const chosen = remembered("theme") ?? "system";
  const dark = chosen === "dark" || (chosen === "system" && systemTheme.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = `Theme: ${chosen}`;
}

$("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(remembered("theme") ?? "system") + 1) % THEMES.length];
  remember("theme", next);
  showTheme();
});
systemTheme.addEventListener("change", showTheme);

/** Values of this tab. Without storage, the page works and forgets. */
function remembered(key) {
  try { return sessionStorage.getItem(key); } catch { return null; }
}

function remember(key, value) {
  try { sessionStorage.setItem(key, value); } catch { /* It lasts until the page is closed. */ }
}

// ---- Rates and tiles.

/** Returns a rate per second from the last two snapshots. */
function rate(read) {
  const { stats, before } = state;
  if (!before) return NaN;
  return Math.max(0, read(stats) - read(before)) * 1000 / (stats.monotonic_ms - before.monotonic_ms);
}

const requestsOf = (stats, keep = () => true) => sum(stats.traffic.filter(keep).map((row) => total(row.requests)));
const refused = (stats) => sum(stats.traffic.map((row) => row.refused));
const kernelDrops = (stats) => sum(stats.workers.map((worker) => worker.kernel_drops));
const ofSwarms = (stats, field) => sum(stats.swarms.map((row) => row[field]));

function tiles(stats) {
  const memory = sum(stats.memory.uses.map((use) => use.bytes));
  const busy = stats.workers.length ? sum(stats.workers.map((worker) => worker.busy)) / stats.workers.length : 0;
  const [seeders, leechers] = [ofSwarms(stats, "seeders"), ofSwarms(stats, "leechers")];
  const perPeer = stats.memory.per_peer;
  return [
    ["Requests", "requests", perSecond(rate(requestsOf)), `${whole(requestsOf(stats))} in all`],
    ["Error replies", "refusals", perSecond(rate(refused)), `${whole(refused(stats))} in all`],
    ["Peers", "peers", short(seeders + leechers), `${short(seeders)} seeders, ${short(leechers)} leechers`],
    ["Swarms", "swarms", short(ofSwarms(stats, "swarms")), `${short(ofSwarms(stats, "completed"))} downloads completed`],
    ["Connections", "connections", short(stats.connections.open), `of at most ${short(stats.connections.max)}`],
    ["Memory", "memory", bytes(memory), `${percent(memory / stats.memory.max)} of ${bytes(stats.memory.max)}` + (perPeer ? `, ${digits(perPeer)} B a peer` : "")],
    ["Load of workers", "load", percent(busy), `${stats.workers.length} ${stats.workers.length === 1 ? "worker" : "workers"}`],
    ["Lost to full buffers", "kernel-drops", short(kernelDrops(stats)), "datagrams, by the kernel"],
  ];
}

function showTiles(stats) {
  const shown = tiles(stats);
  const list = $("tiles");
  if (!list.childElementCount) {
    for (const [label, name] of shown) {
      list.append(element("div", { class: "card" }, element("dt", {}, label),
        element("dd", { class: "value", "data-tile": name }), element("dd", { class: "note" })));
    }
  }
  shown.forEach(([, , value, note], index) => {
    const [, figure, below] = list.children[index].children;
    const [, number, unit] = value.match(/^(\S+?)\s*(\/s|%|[KMGT]?i?B)?$/);
    figure.replaceChildren(number, unit ? element("small", {}, unit) : "");
    below.textContent = note;
    below.title = note;
  });
}

// ---- Warnings.

// The seconds before the end of a certificate from which its renewal is overdue: two weeks, or a quarter of a short life.
function soon(begin, end) {
  return Math.min(14 * 86400, (end - (begin ?? 0)) / 4);
}

function warnings(stats) {
  const found = [];
  stats.workers.forEach((worker, number) => {
    if (worker.heartbeat_age_ms > 2000) found.push(`Worker ${number} has not responded for ${duration(worker.heartbeat_age_ms / 1000)}.`);
  });
  for (const { protocol, family, reason } of stats.paused ?? []) {
    found.push(`${named(protocol)} ${named(family)} is paused: ${reason}`);
  }
  for (const { file, not_before_unix_s: begin, not_after_unix_s: end } of stats.certificates) {
    const left = end - stats.now_unix_s;
    if (end && left < soon(begin, end)) found.push(left < 0 ? `The certificate ${file} has expired.` : `The certificate ${file} expires in ${duration(left)}.`);
  }
  for (const { list, source, fault } of stats.list_sources) {
    if (fault) found.push(`access.${list}, ${source}: ${fault}`);
  }
  if (stats.cluster && !stats.cluster.connected) found.push(`NATS is away, so this node serves alone${stats.cluster.fault ? `: ${stats.cluster.fault}` : "."}`);
  const store = stats.memory.uses.find((use) => use.kind === "store");
  if (store && store.bytes > 0.95 * stats.memory.store_max) found.push("The store is nearly full: new peers are refused, or others make room for them.");
  return found;
}

// ---- The details.

function trafficTable(stats) {
  const rows = stats.traffic.map((row, index) => {
    const now = rate((snapshot) => total(snapshot.traffic[index]?.requests ?? {}));
    return [`${named(row.protocol)} ${named(row.family)}`, perSecond(now), short(row.requests.announce), short(row.requests.scrape + row.requests.full_scrape), short(row.ok), short(row.refused)];
  });
  return table(["", "Now", "Announces", { minor: "Scrapes" }, "Answered", "Errors"], rows, "Requests and replies by protocol and family");
}

function refusalTable(stats) {
  const byReason = new Map();
  for (const { reason, protocol, family, count } of stats.refusals) {
    const row = byReason.get(reason) ?? { count: 0, parts: [] };
    row.count += count;
    row.parts.push(`${named(protocol)} ${named(family)} ${short(count)}`);
    byReason.set(reason, row);
  }
  const ofReason = (snapshot, reason) => sum(snapshot.refusals.filter((row) => row.reason === reason).map((row) => row.count));
  const rows = [...byReason].sort(([, one], [, other]) => other.count - one.count)
    .map(([reason, { count, parts }]) => [words(reason), short(count), perSecond(rate((snapshot) => ofReason(snapshot, reason))), { text: parts.join(", ") }]);
  return rows.length ? table(["Reason", "Count", "Now", { minor: "Where" }], rows, "Error replies by reason") : "No request was refused.";
}

function swarmTable(stats) {
  const rows = stats.swarms.map((row) => [named(row.family), short(row.swarms), short(row.seeders), short(row.leechers), short(row.completed), short(row.expired)]);
  return table(["", "Swarms", "Seeders", "Leechers", "Completed", { minor: "Expired" }], rows, "Swarms and peers by family");
}

const MEMORY_NAMES = { store: "Swarms and peers", webtorrent_swarms: "WebTorrent peers", connections: "Connections", other: "Program and other" };

function memoryPart(stats) {
  const { max, uses } = stats.memory;
  const hues = ["a", "d", "b", "c"];
  const stack = element("div", { class: "stack", "aria-hidden": "true" },
    ...uses.map(({ bytes: part }, index) => wide(element("i", { class: hues[index] }), part / max)));
  const name = ({ kind }, index) => element("span", {}, element("i", { class: `swatch ${hues[index]}` }), MEMORY_NAMES[kind] ?? words(kind));
  const rows = uses.map((use, index) => [name(use, index), bytes(use.bytes), percent(use.bytes / max)]);
  return element("div", {}, stack, table(["Use", "Memory", "Of the ceiling"], rows, "Memory by use"));
}

function workerTable(stats) {
  const rows = stats.workers.map((worker, number) => [`Worker ${number}`, bar(worker.busy, 0.85), `+${percent(worker.interval_raise)}`, short(worker.batches), short(worker.kernel_drops)]);
  return table(["", "Load", "Intervals", { minor: "Batches" }, "Drops"], rows, "Workers");
}

/** A table of counts by name, the most frequent first. */
function counts(head, maps, caption, none) {
  const rows = maps.flatMap(([prefix, map]) => Object.entries(map).map(([name, count]) => [prefix ? `${prefix}, ${words(name)}` : words(name), whole(count)]));
  rows.sort((one, other) => Number(other[1].replace(/\D/g, "")) - Number(one[1].replace(/\D/g, "")));
  return rows.length ? table(head, rows, caption) : none;
}

const CONNECTION_NAMES = { ended: "Ended", tls_handshakes: "TLS handshakes", websocket_upgrades: "WebSocket upgrades" };

function connectionTable(stats) {
  const { connections } = stats;
  const rows = [
    ["Open", whole(connections.open)],
    ["Accepted", whole(connections.accepted)],
    ["Received", bytes(connections.received_bytes)],
    ["Sent", bytes(connections.sent_bytes)],
    ...Object.entries(connections).filter(([, value]) => value instanceof Object).flatMap(([name, byValue]) =>
      Object.entries(byValue).map(([value, count]) => [`${CONNECTION_NAMES[name] ?? words(name)}, ${words(value)}`, whole(count)])),
  ];
  return table(["", "Count"], rows, "Connections");
}

function datagramTable(stats) {
  const rows = stats.datagrams.map((row) => [named(row.family), short(row.received), short(row.sent), short(total(row.drops)), short(total(row.reply_drops))]);
  const drops = stats.datagrams.flatMap((row) => [[named(row.family), row.drops], [`Reply, ${named(row.family)}`, row.reply_drops]]);
  return element("div", {}, table(["", "Received", "Replies sent", "No reply", "Not sent"], rows, "Datagrams by family"),
    counts(["Dropped", "Count"], drops, "Dropped datagrams by reason", ""));
}

function relayTable(stats) {
  const { relays } = stats;
  const rows = [
    ["Offers", short(relays.offers), perSecond(rate((snapshot) => snapshot.relays.offers))],
    ["Answers", short(relays.answers), perSecond(rate((snapshot) => snapshot.relays.answers))],
    ...Object.entries(relays.drops).map(([reason, count]) => [`Dropped, ${words(reason)}`, short(count), perSecond(rate((snapshot) => snapshot.relays.drops[reason] ?? 0))]),
  ];
  return table(["Message", "Count", "Now"], rows, "Relayed WebTorrent messages");
}

/** The value that a part of the samples does not exceed: the end of its bucket. */
function quantile({ bounds_s: bounds, buckets }, part) {
  const rank = part * sum(buckets);
  let seen = 0;
  const index = buckets.findIndex((count) => (seen += count) >= rank);
  return index < bounds.length ? `≤ ${time(bounds[index])}` : `> ${time(bounds.at(-1))}`;
}

function time(seconds) {
  if (seconds < 1e-3) return `${digits(seconds * 1e6)} µs`;
  return seconds < 1 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds)} s`;
}

/** A histogram: a column for each bucket, all protocols together, and quantiles of each. */
function processingPart(stats) {
  const { bounds_s: bounds } = stats.processing[0];
  const columns = stats.processing[0].buckets.map((_, index) => sum(stats.processing.map((row) => row.buckets[index])));
  const highest = Math.max(1, ...columns);
  const bars = element("div", { class: "bars", "aria-hidden": "true" }, ...columns.map((count) => {
    const column = element("i");
    column.style.height = `${(100 * count) / highest}%`;
    return column;
  }));
  const ends = element("div", { class: "ends muted", "aria-hidden": "true" }, element("span", {}, time(bounds[0])),
    element("span", {}, time(bounds[Math.floor(bounds.length / 2)])), element("span", {}, `> ${time(bounds.at(-1))}`));
  const rows = stats.processing.filter((row) => sum(row.buckets)).map((row) =>
    [named(row.protocol), quantile(row, 0.5), quantile(row, 0.99), time(row.sum_s / sum(row.buckets))]);
  return element("div", {}, bars, ends, table(["", "Half", "99 %", "Mean"], rows, "Time in the tracker by protocol"));
}

function clientTable(stats) {
  const rows = stats.clients.map(({ software, share, versions }) =>
    [software, bar(share), { text: versions.slice(0, 3).map(([version, part]) => `${version} ${percent(part)}`).join(", ") }]);
  return table(["Software", "Announces", { minor: "Versions" }], rows, "Software of clients");
}

function topTable(stats) {
  const rows = stats.top_swarms.map((row) => [element("code", {}, row.info_hash), short(row.seeders), short(row.leechers), short(row.completed)]);
  return table(["Info hash", "Seeders", "Leechers", { minor: "Completed" }], rows, "Largest swarms");
}

function certificateTable(stats) {
  const rows = stats.certificates.map(({ file, names, not_before_unix_s: begin, not_after_unix_s: end }) => {
    const left = end - stats.now_unix_s;
    const shown = !end ? "unknown" : element("span", { class: left < soon(begin, end) ? "bad-text" : "" }, left < 0 ? "expired" : `in ${duration(left)}`);
    return [names.join(", ") || file, { text: file }, shown];
  });
  return table(["Names", { minor: "File" }, "Expires"], rows, "Certificates");
}

function listTable(stats) {
  const now = stats.now_unix_s;
  const rows = stats.lists.map((list) => [words(list.name), whole(list.torrents), bytes(list.memory_bytes), list.applied_unix_s ? `${duration(Math.max(0, now - list.applied_unix_s))} ago` : "never"]);
  const sources = stats.list_sources.map((source) => [source.source, whole(source.failures), whole(source.faulty_lines), duration(source.age_s)]);
  const parts = [table(["List", "Torrents", "Memory", "Read"], rows, "Lists of torrents")];
  if (sources.length) parts.push(table(["Source", { minor: "Failures" }, "Faulty lines", "Age"], sources, "Sources of the lists"));
  return element("div", {}, ...parts);
}

/** The state that all nodes of a cluster share. */
function sharedText(shared) {
  if (!shared) return "off";
  const entries = Object.entries(shared.entries).map(([kind, count]) => `${whole(count)} ${kind}`);
  return [`${shared.state} (${entries.join(", ")})`, shared.fault, shared.values_fault].filter(Boolean).join("; ");
}

/** The node of a cluster: its connection to NATS, and the other nodes. */
function clusterPart(stats) {
  const { cluster } = stats;
  const ms = (value) => (value === null ? "–" : time(value / 1000));
  const nats = cluster.connected ? `connected${cluster.server ? ` to ${cluster.server}` : ""}` : "away";
  const flow = (direction) => `${perSecond(rate((snapshot) => snapshot.cluster?.messages[direction] ?? 0))}, ${bytes(cluster.bytes[direction] ?? 0)} in all`;
  const rows = [
    ["Cluster", { text: cluster.name }],
    ["This node", { text: `${cluster.node}, ${cluster.state}` }],
    ["NATS", { text: nats }],
    ["Shared state", { text: sharedText(cluster.shared) }],
    ["Messages in", { text: flow("in") }],
    ["Messages out", { text: flow("out") }],
    ["Messages dropped", { text: whole(total(cluster.dropped)) }],
    ["Batches lost", { text: whole(cluster.counters.lost ?? 0) }],
  ];
  const nodes = cluster.nodes.map((node) => [node.name, { text: node.state }, `${ms(node.seen_ms_ago)} ago`, ms(node.round_trip_ms), ms(node.lag_ms), short(node.behind), perSecond(node.deltas_per_s)]);
  return element("div", {}, table(["", "State"], rows, "The node and its connection to NATS"),
    nodes.length ? table(["Other node", "State", "Seen", { minor: "Round trip" }, "Lag", { minor: "Behind" }, { minor: "Deltas" }], nodes, "Other nodes of the cluster") : "No other nodes.");
}

const CARDS = [
  ["Requests and replies", trafficTable],
  ["Refusals by reason", refusalTable],
  ["Swarms", swarmTable],
  ["Time in the tracker (samples)", processingPart, (stats) => stats.processing.some((row) => sum(row.buckets))],
  ["Software of clients (last hour)", clientTable, (stats) => stats.clients.length > 0],
  ["Largest swarms", topTable, (stats) => stats.top_swarms.length > 0],
  ["Memory", memoryPart],
  ["Workers", workerTable],
  ["Datagrams", datagramTable],
  ["Connections", connectionTable],
  ["WebTorrent relay", relayTable],
  ["Cluster", clusterPart, (stats) => Boolean(stats.cluster)],
  ["Lists", listTable],
  ["Certificates", certificateTable, (stats) => stats.certificates.length > 0],
  ["Banned sources", (stats) => counts(["Cause", "Count"], [["", { ...stats.bans_earned, banned_now: stats.bans }]], "Bans that sources have earned", ""), (stats) => total(stats.bans_earned) > 0 || stats.bans > 0],
  ["Announces without registration", (stats) => counts(["Limit", "Count"], [["", stats.unregistered]], "Announces without registration", ""), (stats) => total(stats.unregistered) > 0],
];

/** Draws the cards whose content has changed, so that a selection or the place of a reader in the others stays. */
function showDetails(stats) {
  const place = $("details");
  CARDS.forEach(([title, content, isShown = () => true], index) => {
    const card = place.children[index] ?? place.appendChild(element("section", { class: "card" }, element("h3", {}, title), element("div", { class: "empty" })));
    card.setAttribute("aria-label", title);
    card.hidden = !isShown(stats);
    if (card.hidden) return;
    const made = element("div", {}, content(stats));
    if (!made.firstElementChild) made.className = "empty";
    if (!made.isEqualNode(card.lastElementChild)) card.lastElementChild.replaceWith(made);
    // A table that is wider than its card can be scrolled by keyboard, too.
    if (card.scrollWidth > card.clientWidth) card.tabIndex = 0; else card.removeAttribute("tabindex");
  });
}

// ---- The charts.

const plain = (value) => short(value < 10 ? Math.round(value * 10) / 10 : Math.round(value));
const CHARTS = [
  new Chart("Requests per second", [
    { name: "UDP", field: "udp", hue: "a" }, { name: "HTTP", field: "http", hue: "b" }, { name: "WebTorrent", field: "webtorrent", hue: "c" }], plain),
  new Chart("Peers", [{ name: "Leechers", field: "leechers", hue: "a" }, { name: "Seeders", field: "seeders", hue: "b" }], plain),
  new Chart("Swarms", [{ name: "Swarms", field: "swarms", hue: "a" }], plain),
  new Chart("Memory", [{ name: "In use", field: "memory", hue: "d" }], bytes),
  new Chart("Load of workers", [{ name: "Mean", field: "busy", hue: "c" }], percent, 1),
  new Chart("Connections", [{ name: "Open", field: "connections", hue: "b" }], plain),
  new Chart("Time in the tracker", [
    { name: "50 %", field: "p50_us", hue: "a" }, { name: "99 %", field: "p99_us", hue: "c" }], (value) => time(value / 1e6)),
  new Chart("Errors per second", [{ name: "Refused", field: "refused", hue: "c" }, { name: "Dropped", field: "dropped", hue: "d" }], plain),
];
$("charts").append(...CHARTS.map((chart) => chart.figure));

function readSample(fields, [time, values]) {
  return Object.fromEntries([["time", time], ...fields.map((field, index) => [field, values[index]])]);
}

function takeHistory(history) {
  const ring = ({ step_s: step, span_s: span, samples }) => ({ step, span, samples: samples.map((sample) => readSample(history.fields, sample)) });
  state.history = { fields: history.fields, hour: ring(history.hour), day: ring(history.day) };
}

/** Appends the newest samples. Returns whether there were any. */
function takeSamples(samples) {
  let isNew = false;
  ["hour", "day"].forEach((range, index) => {
    const known = state.history[range];
    const [time] = samples[index] ?? [0];
    if (time <= (known.samples.at(-1)?.time ?? 0)) return;
    known.samples.push(readSample(state.history.fields, samples[index]));
    while (known.samples[0].time <= time - known.span) known.samples.shift();
    isNew = true;
  });
  return isNew;
}

function showCharts() {
  const { samples, span: whole, step } = state.history[state.range];
  const end = samples.at(-1)?.time ?? state.stats.now_unix_s;
  // Until there is as much history, a part of the period is shown.
  const covered = end - (samples[0]?.time ?? end);
  const span = [whole / 6, whole / 2, whole].find((part) => covered <= part) ?? whole;
  for (const chart of CHARTS) chart.show(samples, end, span, step);
}

for (const button of document.querySelectorAll("[data-range]")) {
  button.addEventListener("click", () => {
    state.range = button.dataset.range;
    for (const other of document.querySelectorAll("[data-range]")) other.setAttribute("aria-pressed", String(other === button));
    if (state.history) showCharts();
  });
}

// ---- The connection. Events are read by fetch, which can send a token.

function showLink(text, kind) {
  const pill = $("link");
  if (pill.textContent !== text) pill.textContent = text;
  pill.className = `pill ${kind}`;
}

function show({ stats, samples }) {
  // A tracker that was restarted counts from zero.
  if (state.stats && stats.started_unix_s !== state.stats.started_unix_s) state.stats = null;
  if (state.stats && stats.monotonic_ms <= state.stats.monotonic_ms) return;
  [state.before, state.stats] = [state.stats, stats];
  $("figures").hidden = false;
  $("version").textContent = stats.version;
  $("uptime").textContent = `up ${duration(stats.now_unix_s - stats.started_unix_s)}`;
  $("build").textContent = `Shoal ${stats.version}, commit ${stats.commit}, ${stats.build}, ${stats.io}`;
  const alerts = warnings(stats);
  const shown = [...$("alerts").children].map((alert) => alert.textContent);
  if (alerts.join("\n") !== shown.join("\n")) $("alerts").replaceChildren(...alerts.map((text) => element("p", { role: "alert" }, text)));
  showTiles(stats);
  showDetails(stats);
  if (takeSamples(samples) || !state.before) showCharts();
}

async function ask(path, signal) {
  const token = remembered("token") ?? state.token;
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  if (response.status === 401) throw new Denied(token);
  if (!response.ok) throw new Refused(wordsOf(await response.text()) || response.statusText);
  return response;
}

/** The reason that a reply tells, as text or as the member `error`. */
function wordsOf(reply) {
  try { return JSON.parse(reply).error ?? ""; } catch { return reply.trim(); }
}

class Refused extends Error {}

class Denied extends Error {
  constructor(token) {
    super("a token is required");
    this.token = token;
  }
}

/** Reads events until the connection ends or is silent for ten seconds. */
async function follow() {
  const stop = new AbortController();
  let silence = setTimeout(() => stop.abort(), 10000);
  try {
    takeHistory(await (await ask("/status/history", stop.signal)).json());
    const reader = (await ask("/status/events", stop.signal)).body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), 10000);
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) if (event.startsWith("data: ")) show(JSON.parse(event.slice(6)));
      state.failures = 0;
      showLink("Live", "good");
      showProblem("");
    }
  } finally {
    clearTimeout(silence);
    stop.abort();
  }
}

function askForToken(denied) {
  state.token = null;
  remember("token", "");
  showLink("Token required", "");
  showProblem("");
  $("login-error").textContent = denied.token ? "The tracker does not accept this token." : "";
  $("figures").hidden = true;
  $("login").hidden = false;
  $("token").focus();
  return new Promise((resolve) => {
    $("login").onsubmit = (event) => {
      event.preventDefault();
      const token = $("token").value.trim();
      $("token").value = "";
      // Others cannot be sent.
      if (!/^[\x21-\x7e]+$/.test(token)) {
        $("login-error").textContent = "A token consists of Latin letters, digits and ASCII signs, without spaces.";
        return;
      }
      state.token = token;
      remember("token", token);
      $("login").hidden = true;
      resolve();
    };
  });
}

async function run() {
  for (;;) {
    try {
      await follow();
    } catch (error) {
      if (error instanceof Denied) {
        await askForToken(error);
        continue;
      }
      state.failures += 1;
      showFailure(error);
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs()));
  }
}

function showFailure(error) {
  const isRefused = error instanceof Refused;
  showProblem(isRefused ? `The tracker refuses to show its figures: ${error.message}` : "");
  if (isRefused) showLink("Refused", "bad");
  else showLink(state.failures > 1 ? "No connection" : "Connecting", state.failures > 1 ? "bad" : "");
}

function showProblem(text) {
  if ($("problem").textContent !== text) $("problem").textContent = text;
  $("problem").hidden = text === "";
}

/** The time until the next attempt: a second also after a stream that has ended without a failure. */
function pauseMs() {
  return Math.min(1000 * Math.max(1, state.failures), 10000);
}

showTheme();
run();
