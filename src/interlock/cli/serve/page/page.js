"use strict";

// Names and labels are others' words: they get into the page as text only, and what can't be seen is spelt out.
const one = (id) => document.getElementById(id);
const shown = (text) =>
  text.replace(/[\p{C}\p{Z}]/gu, (char) => (char === " " ? char : `\\u{${char.codePointAt(0).toString(16)}}`));

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const SLOW = 60; // seconds of waiting after which a time is coloured
const STUCK = 600;
const FEW = 5; // waiters that are shown before the rest is asked for
const rows = new Map(); // the row of each lock, by name
const items = new Map(); // the item of each claim
const leases = new Map(); // the longest lease that was seen of each claim, because no store tells its full length
const opened = new Set(); // the names of locks whose waiters are all shown

function duration(seconds) {
  const [size, unit] = UNITS.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.max(0, Math.floor(seconds / size))} ${unit}`;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function set(element, name, value) {
  if (element[name] !== value) element[name] = value;
}

function make(kind, className, ...children) {
  const made = document.createElement(kind);
  made.className = className;
  made.append(...children);
  return made;
}

function say(text) {
  put(one("message"), text);
  set(one("message"), "hidden", !text);
}

/** Put children into an element in this order; what stays is not touched, so that clicks and selections last. */
function arrange(parent, children) {
  const kept = new Set(children);
  for (const child of [...parent.childNodes]) if (!kept.has(child)) child.remove();
  let place = parent.firstChild;
  for (const child of children) {
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
}

/** Return what a map has for a key, or make it. */
function kept(map, key, making) {
  if (!map.has(key)) map.set(key, making());
  return map.get(key);
}

const keyOf = (name, claim) => JSON.stringify([name, claim.id]);
const processOf = (claim) => `${claim.pid}@${claim.host}${claim.instance ? ` (${claim.instance})` : ""}`;

function kindOf(holders, waiters) {
  const claims = [...holders, ...waiters];
  const isSemaphore = (claim) => claim.kind.startsWith("semaphore");
  const used = holders.reduce((sum, claim) => sum + claim.units, 0);
  const limit = Math.min(...claims.filter(isSemaphore).map((claim) => claim.capacity)); // the smallest one counts
  return [...new Set(claims.map((claim) => (isSemaphore(claim) ? `semaphore ${used} of ${limit}` : claim.kind)))].join(", ");
}

function newItem() {
  const item = make("li", "");
  const button = make("button", "evict", "Evict");
  button.type = "button";
  const meter = make("meter", "");
  meter.setAttribute("aria-hidden", "true"); // the words behind it say the same
  meter.min = 0;
  item.parts = {
    who: make("span", "who"), label: make("small", "label"), time: make("span", "time"), button, meter,
    lease: make("span", "soft"),
  };
  item.append(item.parts.who, item.parts.time, button, item.parts.label, make("div", "lease", meter, item.parts.lease));
  return item;
}

function fillItem(item, name, claim, now, canEvict) {
  const { who, label, time, button, meter, lease } = item.parts;
  const isHolder = claim.state === "using";
  const seconds = (now - Date.parse((isHolder && claim.held_since) || claim.since)) / 1000;
  put(who, shown(processOf(claim)));
  const thread = claim.thread === "MainThread" ? "" : `thread ${shown(claim.thread)}`;
  const fence = claim.fence === null ? "" : `fence ${claim.fence}`;
  put(label, [shown(claim.label), thread, fence].filter(Boolean).join(", "));
  put(time, `${isHolder ? "held" : "waits"} ${duration(seconds)}`);
  set(time, "className", isHolder || seconds < SLOW ? "time" : `time ${seconds < STUCK ? "slow" : "stuck"}`);
  set(meter.parentNode, "hidden", !isHolder);
  if (isHolder) {
    const key = keyOf(name, claim);
    const full = Math.max(leases.get(key) ?? 0, claim.expires_in);
    leases.set(key, full);
    set(meter, "max", full);
    set(meter, "low", full / 4); // a holder renews after a third of the lease
    set(meter, "optimum", full);
    set(meter, "value", claim.expires_in);
    put(lease, `lease ends in ${duration(claim.expires_in)}`);
  }
  set(button, "hidden", !canEvict);
  set(button, "ariaLabel", `Evict ${shown(processOf(claim))} from ${shown(name)}`);
  button.onclick = () => evict(name, claim);
}

function newRow(name) {
  const row = make("tr", "");
  const head = make("th", "");
  head.scope = "row";
  row.parts = {
    name: make("span", ""), kind: make("small", ""), holders: make("ul", ""), waiters: make("ol", ""),
    none: make("span", "soft"), more: make("button", "more soft"),
  };
  const { more } = row.parts;
  more.type = "button";
  more.onclick = () => {
    if (!opened.delete(name)) opened.add(name);
    look();
  };
  head.append(row.parts.name, row.parts.kind);
  const holders = make("td", "holders", row.parts.holders, row.parts.none);
  const waiters = make("td", "waiters");
  row.append(head, holders, waiters);
  // On a narrow screen the cells are blocks, which are no cells without a role.
  row.setAttribute("role", "row");
  head.setAttribute("role", "rowheader");
  holders.setAttribute("role", "cell");
  waiters.setAttribute("role", "cell");
  return row;
}

function fillRow(row, { name, holders, waiters }, now, canEvict) {
  const { more } = row.parts;
  const itemOf = (claim) => {
    const item = kept(items, keyOf(name, claim), newItem);
    fillItem(item, name, claim, now, canEvict);
    return item;
  };
  put(row.parts.name, shown(name));
  put(row.parts.kind, kindOf(holders, waiters));
  put(row.parts.none, holders.length ? "" : "none");
  arrange(row.parts.holders, holders.map(itemOf));
  const isOpen = opened.has(name);
  arrange(row.parts.waiters, (isOpen ? waiters : waiters.slice(0, FEW)).map(itemOf));
  const rest = waiters.length - FEW;
  put(more, isOpen ? "show fewer" : `and ${rest} more`);
  set(more, "ariaExpanded", String(isOpen));
  // An empty cell has no heading on a narrow screen.
  arrange(row.cells[2], waiters.length ? [row.parts.waiters, ...(rest > 0 ? [more] : [])] : []);
  row.words = [name, ...[...holders, ...waiters].flatMap((claim) => [processOf(claim), claim.label])].join("\n").toLowerCase();
}

function forget(map, isKept) {
  for (const key of map.keys()) if (!isKept(key)) map.delete(key);
}

function listOf(id, section, lines) {
  const list = one(id);
  while (list.children.length > lines.length) list.lastChild.remove();
  while (list.children.length < lines.length) list.append(make("li", ""));
  lines.forEach((line, number) => put(list.children[number], line));
  set(one(section), "hidden", !lines.length);
}

function show(look) {
  put(one("store"), `Store ${look.store}` + (look.namespace ? `, namespace ${shown(look.namespace)}` : ""));
  set(one("key"), "hidden", !look.token);
  if (look.error !== undefined) return away(`The store cannot be used: ${shown(look.error)}`);
  const now = Date.parse(look.time);
  const lines = [];
  const records = [];
  for (const { name, holders, waiters } of look.locks) {
    const using = holders.filter((claim) => claim.state === "using");
    for (const claim of holders) {
      if (claim.state === "done") records.push(`${shown(name)}, kept for ${duration(claim.expires_in)}`);
    }
    if (using.length + waiters.length) lines.push({ name, holders: using, waiters });
  }
  arrange(one("claims"), lines.map((line) => {
    const row = kept(rows, line.name, () => newRow(line.name));
    fillRow(row, line, now, look.token);
    return row;
  }));
  const names = new Set(lines.map((line) => line.name));
  const keys = new Set(lines.flatMap(({ name, holders, waiters }) => [...holders, ...waiters].map((claim) => keyOf(name, claim))));
  forget(rows, (name) => names.has(name));
  forget(opened, (name) => names.has(name));
  forget(items, (key) => keys.has(key));
  forget(leases, (key) => keys.has(key));
  listOf("records", "done", records);
  listOf("evictions", "evicted", look.evictions.map(({ time, name, claim, by }) =>
    `${new Date(time).toLocaleTimeString()}: ${shown(by)} evicted ${shown(claim)} from ${shown(name)}`));
  const count = (what) => lines.reduce((sum, line) => sum + line[what].length, 0);
  const some = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  const more = look.hidden ? `; ${look.hidden} more claims are not shown` : "";
  one("counts").full = `${some(lines.length, "lock")}, ${some(count("holders"), "holder")}, ${some(count("waiters"), "waiter")}${more}`;
  set(one("empty"), "hidden", lines.length > 0);
  search();
  document.querySelector("main").classList.remove("stale");
  one("state").className = "live";
  put(one("state"), "live");
}

function search() {
  const words = one("search").value.toLowerCase().split(/\s+/);
  let found = 0;
  for (const row of rows.values()) {
    const isFound = words.every((word) => row.words.includes(word));
    set(row, "hidden", !isFound);
    found += isFound;
  }
  const counts = one("counts");
  put(counts, words.some(Boolean) ? `${found} of ${counts.full}` : counts.full ?? "");
}

function away(why) {
  document.querySelector("main").classList.add("stale");
  one("state").className = "away";
  put(one("state"), why);
}

async function evict(name, claim) {
  const token = one("token").value;
  if (!token) {
    say("Enter the token first.");
    one("token").focus();
    return;
  }
  const who = processOf(claim);
  const question =
    claim.state === "using"
      ? `Evict ${shown(who)} from ${shown(name)}? The holder is notified at its next renewal; until then two may be at work.`
      : `Evict ${shown(who)}, who waits for ${shown(name)}?`;
  if (!confirm(question)) return;
  try {
    // The token is in a header that no form and no other site can send.
    const answer = await fetch("/evict", {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: JSON.stringify({ name, id: claim.id }),
    });
    const told = await answer.json();
    say(told.error ? `Not evicted: ${shown(told.error)}` : told.evicted ? "" : "The claim no longer exists.");
    await look();
  } catch (error) {
    say(`Not evicted: ${error.message}`);
  }
}

async function look() {
  let seen;
  try {
    seen = await (await fetch("/look")).json();
  } catch (error) {
    return away("not connected; what you see is old");
  }
  show(seen);
}

async function watch() {
  try {
    if (!document.hidden) await look();
  } finally {
    setTimeout(watch, 1000);
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target.tagName !== "INPUT") {
    event.preventDefault();
    one("search").focus();
  }
});
one("search").addEventListener("input", search);
watch();
