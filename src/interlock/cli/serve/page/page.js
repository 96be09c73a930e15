"use strict";

// Names and labels are others' words: they get into the page as text only, and what can't be seen is spelt out.
const one = (id) => document.getElementById(id);
const shown = (text) =>
  text.replace(/[\p{C}\p{Z}]/gu, (char) => (char === " " ? char : `\\u{${char.codePointAt(0).toString(16)}}`));

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const FIELDS = ["lock", "state", "kind", "process", "thread", "label", "since", "lease", "fence"];
const rows = new Map();

function duration(seconds) {
  const [size, unit] = UNITS.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.max(0, Math.floor(seconds / size))} ${unit}`;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function say(text) {
  put(one("message"), text);
  one("message").hidden = !text;
}

function newRow() {
  const row = document.createElement("tr");
  for (const field of FIELDS) row.insertCell().className = field;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Evict";
  row.insertCell().append(button);
  return row;
}

function fill(row, name, claim, now, again, canEvict) {
  const isRecord = claim.state === "done";
  row.className = claim.state + (again ? " again" : "");
  const texts = [
    shown(name),
    { using: "holder", pending: "waiter", done: "record" }[claim.state],
    claim.kind,
    isRecord ? "" : shown(`${claim.pid}@${claim.host}`),
    shown(claim.thread),
    shown(claim.label),
    isRecord ? "" : `${duration((now - Date.parse(claim.held_since ?? claim.since)) / 1000)} ago`,
    `${isRecord ? "kept for" : "in"} ${duration(claim.expires_in)}`,
    claim.fence === null ? "" : String(claim.fence),
  ];
  texts.forEach((text, number) => put(row.cells[number], text));
  const button = row.cells[FIELDS.length].firstChild;
  button.hidden = !canEvict || isRecord;
  button.onclick = () => evict(name, claim);
}

function show(look) {
  put(one("store"), `Store ${look.store}` + (look.namespace ? `, namespace ${shown(look.namespace)}` : ""));
  one("key").hidden = !look.token;
  if (look.error !== undefined) return away(`The store cannot be used: ${shown(look.error)}`);
  const now = Date.parse(look.time);
  const claims = new Map();
  for (const { name, holders, waiters } of look.locks) {
    [...holders, ...waiters].forEach((claim, number) => {
      claims.set(JSON.stringify([name, claim.id]), [name, claim, number > 0]);
    });
  }
  for (const [key, row] of rows) {
    if (!claims.has(key)) {
      row.remove();
      rows.delete(key);
    }
  }
  const body = one("claims");
  let place = body.firstChild;
  for (const [key, [name, claim, again]] of claims) {
    const row = rows.get(key) ?? newRow();
    rows.set(key, row);
    fill(row, name, claim, now, again, look.token);
    // Leave a row in its right place untouched, so that clicks and selections last.
    if (row === place) place = place.nextSibling;
    else body.insertBefore(row, place);
  }
  const count = (state) => [...claims.values()].filter(([, claim]) => claim.state === state).length;
  const records = count("done") ? `, ${count("done")} records` : "";
  const more = look.hidden ? `; ${look.hidden} more claims are not shown` : "";
  put(one("counts"), `${look.locks.length} locks, ${count("using")} holders, ${count("pending")} waiters${records}${more}`);
  one("empty").hidden = claims.size > 0;
  document.querySelector("table").classList.remove("stale");
  one("state").className = "live";
  put(one("state"), "live");
}

function away(why) {
  document.querySelector("table").classList.add("stale");
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
  const who = `${claim.pid}@${claim.host}`;
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
  try {
    const answer = await fetch("/look");
    show(await answer.json());
  } catch (error) {
    away("not connected; what you see is old");
  }
}

async function watch() {
  if (!document.hidden) await look();
  setTimeout(watch, 1000);
}

watch();
