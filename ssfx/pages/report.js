"use strict";
// Hides what the filters and the search leave out: claims one by one, then artifacts and papers that show none.
const fields = ["paper", "verdict", "origin"].map((name) => document.getElementById(name));
const search = document.getElementById("search");
const shown = document.getElementById("shown");
const claims = [...document.querySelectorAll(".claims tr[id]")];
const words = new Map(claims.map((line) => [line, (line.id + " " + line.textContent).toLowerCase()]));

const roman = { i: 1, ii: 2, iii: 3, iv: 4, v: 5, vi: 6, vii: 7, viii: 8, ix: 9, x: 10 };

// "Fig. 7", "figure 7" and "Table II" are asked for as claims name them: fig7, table2, and not fig70.
function wanted(text) {
  const named = text.toLowerCase().replace(
    /\b(fig|table|eq|alg)[a-z]*\.?\s*\(?(\d+|[ivx]+)\b\)?/g,
    (_, kind, number) => `${kind}${roman[number] ?? number}`
  );
  return named.split(/\s+/).filter(Boolean).map((word) => {
    const plain = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    return new RegExp(/\d$/.test(word) ? `${plain}(?!\\d)` : plain);
  });
}

function apply() {
  const asked = wanted(search.value);
  const filtered = asked.length > 0 || fields.some((field) => field.value);
  let count = 0;
  for (const line of claims) {
    const fits = fields.every((field) => !field.value || line.dataset[field.id] === field.value);
    line.hidden = !(fits && asked.every((word) => word.test(words.get(line))));
    count += !line.hidden;
  }
  for (const section of document.querySelectorAll(".artifact")) {
    const lines = [...section.querySelectorAll(".claims tr[id]")];
    section.hidden = filtered && !lines.some((line) => !line.hidden);
  }
  for (const paper of document.querySelectorAll("section.paper")) {
    paper.hidden = filtered && !paper.querySelector(".artifact:not([hidden])");
  }
  shown.textContent = `${count} of ${claims.length} claims`;
}

for (const field of [...fields, search]) field.addEventListener("input", apply);
apply();
