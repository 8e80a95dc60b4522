"use strict";
// Hides what the filters and the search leave out: claims one by one, then sections that show none.
const fields = ["paper", "verdict", "origin"].map((name) => document.getElementById(name));
const search = document.getElementById("search");
const shown = document.getElementById("shown");
const claims = [...document.querySelectorAll(".claims tr[id]")];
const words = new Map(claims.map((line) => [line, (line.id + " " + line.textContent).toLowerCase()]));

function apply() {
  const asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const filtered = asked.length > 0 || fields.some((field) => field.value);
  let count = 0;
  for (const line of claims) {
    const fits = fields.every((field) => !field.value || line.dataset[field.id] === field.value);
    line.hidden = !(fits && asked.every((word) => words.get(line).includes(word)));
    count += !line.hidden;
  }
  for (const section of document.querySelectorAll(".artifact")) {
    const lines = [...section.querySelectorAll(".claims tr[id]")];
    section.hidden = filtered && !lines.some((line) => !line.hidden);
  }
  shown.textContent = `${count} of ${claims.length} claims`;
}

for (const field of [...fields, search]) field.addEventListener("input", apply);
apply();
