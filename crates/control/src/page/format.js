// Texts of numbers, and elements. Nothing here, or elsewhere in this page, parses text as HTML.

const SCALES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Three significant digits, with a suffix for thousands. */
function short(value) {
  if (!Number.isFinite(value)) return "–";
  for (const [scale, suffix] of SCALES) {
    if (Math.abs(value) >= scale * 0.9995) return digits(value / scale) + suffix;
  }
  return Number.isInteger(value) ? String(value) : digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

/** All digits, in groups. */
function whole(value) {
  return Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
}

function bytes(value) {
  for (const [scale, suffix] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= scale) return `${digits(value / scale)} ${suffix}`;
  }
  return `${Math.round(value)} B`;
}

function percent(part) {
  return `${digits(100 * part)} %`;
}

function perSecond(value) {
  return `${short(value < 10 ? Math.round(value * 10) / 10 : Math.round(value))}/s`;
}

/** A duration in its two largest units. */
function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = Math.max(0, units.findIndex(([size]) => seconds >= size));
  if (seconds < 1) return "0 s";
  const [size, name] = units[first];
  const rest = units[first + 1] && Math.floor((seconds % size) / units[first + 1][0]);
  return `${Math.floor(seconds / size)} ${name}` + (rest ? ` ${rest} ${units[first + 1][1]}` : "");
}

/** A name from the tracker in words: `wrong_connection_id` is "wrong connection id". */
function words(name) {
  return name.replaceAll("_", " ");
}

const NAMES = { udp: "UDP", http: "HTTP", webtorrent: "WebTorrent", v4: "IPv4", v6: "IPv6" };

function named(name) {
  return NAMES[name] ?? words(name);
}

/** Creates an element with attributes and children; strings become text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** Styles are set by script: the content security policy forbids style attributes. */
function wide(made, part) {
  made.style.width = `${Math.max(0, Math.min(1, part || 0)) * 100}%`;
  return made;
}

/** A bar beside its percentage, in another colour above `high`. */
function bar(part, high = Infinity) {
  const made = element("span", { class: part > high ? "meter high" : "meter", "aria-hidden": "true" }, wide(element("i"), part));
  return element("span", {}, made, percent(part));
}

/** A table; the first cell of each row is its header. A cell is text, an element, or { text: … } for words. A column whose
    name is { minor: … } is left out where there is little space. */
function table(head, rows, caption) {
  const minor = (index) => (head[index]?.minor === undefined ? [] : ["minor"]);
  const classes = (...names) => (names.length ? { class: names.join(" ") } : {});
  const cell = (content, index) => {
    if (index === 0) {
      const isLong = typeof content === "string" && content.length > 24;
      return element("th", isLong ? { scope: "row", class: "long" } : { scope: "row" }, content);
    }
    const isWords = content?.text !== undefined;
    return element("td", classes(...minor(index), ...(isWords ? ["text"] : [])), isWords ? content.text : content);
  };
  const made = element("table", {},
    element("caption", { class: "hidden" }, caption),
    element("thead", {}, element("tr", {}, ...head.map((name, index) =>
      element("th", { scope: "col", ...classes(...minor(index), ...(rows[0]?.[index]?.text === undefined ? [] : ["text"])) }, name?.minor ?? name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
  return made;
}
