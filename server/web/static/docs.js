// Shows openapi.json: each call with its parameters, its body and answer as examples,
// and a curl line to begin with.
"use strict";

const deepest = 6; // levels of an example; messages may hold themselves
const first = ["Graph", "Counters"]; // what most come for

async function main() {
  const calls = document.getElementById("calls");
  try {
    const answer = await fetch("/openapi.json");
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    show(calls, await answer.json());
  } catch (e) {
    calls.replaceChildren(make("p", "openapi.json cannot be shown: " + e.message));
    return;
  }
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => narrow(calls, filter.value.trim().toLowerCase()));
}

function show(calls, doc) {
  const groups = new Map(first.map((name) => [name, { parts: [] }]));
  for (const tag of doc.tags || []) groups.set(tag.name, { about: flowing(tag.description), parts: [] });
  for (const [path, methods] of Object.entries(doc.paths)) {
    for (const [method, call] of Object.entries(methods)) {
      const name = call.tags[0];
      if (!groups.has(name)) groups.set(name, { parts: [] });
      groups.get(name).parts.push(showCall(doc, method, path, call));
    }
  }
  const sections = [];
  for (const [name, group] of groups) {
    if (group.parts.length === 0) continue;
    sections.push(make("section", make("h2", name), make("p.about", group.about), ...group.parts));
  }
  calls.replaceChildren(...sections);
}

function showCall(doc, method, path, call) {
  const box = make("details.call");
  box.dataset.text = [method, path, call.operationId, call.summary].join(" ").toLowerCase();
  box.append(make("summary", make("span.method." + method, method.toUpperCase() + " "), make("code", path),
    make("span.about", call.summary || call.operationId.replace("_", "."))));
  // What is inside is made when it is first looked at.
  box.addEventListener("toggle", () => box.append(inside(doc, method, path, call)), { once: true });
  return box;
}

function inside(doc, method, path, call) {
  const out = make("div", call.description && make("p.about", flowing(call.description)));
  const params = call.parameters || [];
  const fields = params.filter((p) => p.in !== "body");
  const body = params.find((p) => p.in === "body");
  if (fields.length > 0) {
    out.append(make("h3", "Parameters"), make("table", ...fields.map((p) =>
      make("tr", make("td", make("code", p.name), make("br"), make("span", p.in + ", " + kind(p))), make("td", p.description || "")))));
  }
  let line = "curl ";
  if (method !== "get") line += "-X " + method.toUpperCase() + " ";
  line += "'" + location.origin + path + "'";
  if (body) {
    const example = JSON.stringify(exampleOf(doc, body.schema, 0), null, 2);
    out.append(make("h3", "Body"), make("pre", example), ...about(doc, body.schema));
    line += " -H 'Content-Type: application/json' -d '" + JSON.stringify(JSON.parse(example)) + "'";
  }
  out.append(make("h3", "curl"), make("pre", line));
  const good = call.responses["200"];
  if (good && good.schema) {
    out.append(make("h3", "Answer" + (/streaming/.test(good.description) ? ", one a line" : "")),
      make("pre", JSON.stringify(exampleOf(doc, good.schema, 0), null, 2)), ...about(doc, good.schema));
  }
  return out;
}

// kind is the type of a parameter or field, in words.
function kind(schema) {
  if (schema.$ref) return refName(schema);
  if (schema.type === "array") return "list of " + kind(schema.items);
  if (schema.enum) return schema.enum.join(" | ");
  return schema.format ? schema.type + " (" + schema.format + ")" : schema.type || "object";
}

// about is a table of the fields of a message, where any of them is explained.
function about(doc, schema) {
  const properties = Object.entries(resolve(doc, schema).properties || {});
  const rows = properties.map(([name, p]) => [name, p, p.description || p.title || resolve(doc, p).description || ""]);
  if (rows.every((r) => r[2] === "")) return [];
  return [make("table", ...rows.map(([name, p, text]) =>
    make("tr", make("td", make("code", name), make("br"), make("span", kind(p))), make("td", text))))];
}

function refName(schema) {
  return schema.$ref.split("/").pop().replace(/^v1/, "");
}

function resolve(doc, schema) {
  return schema.$ref ? doc.definitions[schema.$ref.split("/").pop()] : schema;
}

// exampleOf is a value of a schema.
function exampleOf(doc, schema, depth) {
  schema = resolve(doc, schema);
  if (depth > deepest) return {};
  if (schema.enum) return schema.enum[0];
  switch (schema.type) {
    case "array": return [exampleOf(doc, schema.items, depth + 1)];
    case "boolean": return false;
    case "integer": case "number": return 0;
    case "string": return /int64/.test(schema.format || "") ? "0" : "";
  }
  const out = {};
  for (const [name, p] of Object.entries(schema.properties || {})) out[name] = exampleOf(doc, p, depth + 1);
  return out;
}

function narrow(calls, text) {
  for (const section of calls.querySelectorAll("section")) {
    let left = 0;
    for (const box of section.querySelectorAll("details")) {
      box.hidden = !box.dataset.text.includes(text);
      if (!box.hidden) left++;
    }
    section.hidden = left === 0;
  }
}

// flowing is a comment of the .proto files without the ends of its lines, but for those
// between paragraphs.
function flowing(text = "") {
  return text.replace(/([^\n])\n(?!\n)/g, "$1 ");
}

// make is an element, such as "p.about", with children, which may be texts; nothing is
// ever parsed as HTML.
function make(tag, ...children) {
  const [name, ...classes] = tag.split(".");
  const e = document.createElement(name);
  e.className = classes.join(" ");
  e.append(...children.filter((c) => c));
  return e;
}

main();
