"use strict";
// Hides what the filters and the search leave out: claims one by one, then artifacts and papers that show none.
const fields = ["paper", "verdict", "origin"].map((name) => document.getElementById(name));
const search = document.getElementById("search");
const shown = document.getElementById("shown");
const names = new Map([...(fields[0].options ?? [])].map((option) => [option.value, option.textContent]));
const claims = [...document.querySelectorAll(".claims tr[id]")];
const roman = { i: 1, ii: 2, iii: 3, iv: 4, v: 5, vi: 6, vii: 7, viii: 8, ix: 9, x: 10 };

// Both what is asked and what a claim says are written alike: "Fig. 5(a)", "figure 5a" as fig5a, "Table II" as table2,
// "Experiment 1" as exp1, "\u00a7V-B" and "section V-B" as \u00a7v~b, "106.7 %" as 106.7%, "Ok-Topk" as oktopk.
function alike(text) {
  return text
    .toLowerCase()
    .replace(/(?:\u00a7\s*|\bsect?(?:ion|\.)\s*)([ivx]+|\d+)(?:[-.]([a-z]|\d+))?(?![a-z0-9])/g,
      (_, first, second) => `\u00a7${first}${second ? "~" + second : ""}`)
    .replace(/\b(fig|table|eq|alg)[a-z]*\.?\s*\(?(\d+|[ivx]+)\b\)?(?:\s*\(([a-z])\))?/g,
      (_, kind, number, panel) => `${kind}${roman[number] ?? number}${panel ?? ""}`)
    .replace(/\bexp(?:eriment)?\.?\s*(\d+)/g, "exp$1")
    .replace(/(\d)\s+%/g, "$1%")
    .replace(/(?<=[a-z0-9])[-_](?=[a-z0-9])/g, "");
}

// A number is not the beginning of a longer one, nor a section that of another one.
function wanted(text) {
  return alike(text).split(/\s+/).filter(Boolean).map((word) => {
    const plain = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const start = /^\d/.test(word) ? "(?<![\\d.])" : "";
    const end = word.startsWith("\u00a7") ? "(?![a-z0-9])" : /\d$/.test(word) ? "(?!\\d)" : "";
    return new RegExp(start + plain + end);
  });
}

const words = new Map(claims.map((line) => [line, alike(`${line.id} ${line.dataset.words} ${line.textContent}`)]));

function apply() {
  const asked = wanted(search.value);
  const filtered = asked.length > 0 || fields.some((field) => field.value);
  const elsewhere = new Map();
  let count = 0;
  for (const line of claims) {
    const fits = fields.every((field) => !field.value || line.dataset[field.id] === field.value);
    const said = asked.every((word) => word.test(words.get(line)));
    line.hidden = !(fits && said);
    count += !line.hidden;
    if (said && !fits) elsewhere.set(line.dataset.paper, (elsewhere.get(line.dataset.paper) ?? 0) + 1);
  }
  for (const section of document.querySelectorAll(".artifact")) {
    const lines = [...section.querySelectorAll(".claims tr[id]")];
    section.hidden = filtered && !lines.some((line) => !line.hidden);
  }
  for (const paper of document.querySelectorAll("section.paper")) {
    paper.hidden = filtered && !paper.querySelector(".artifact:not([hidden])");
  }
  shown.textContent = `${count} of ${claims.length} claims${count ? "" : instead(elsewhere)}`;
  return filtered && count > 0;
}

// The first hit comes below the search box, which stays on top; with nothing asked, the page begins again.
function show() {
  if (apply()) document.querySelector(".artifact:not([hidden])").scrollIntoView();
  else if (!search.value && !fields.some((field) => field.value)) window.scrollTo(0, 0);
}

// Where the words are said if the filters are set to all, or what else can be asked.
function instead(elsewhere) {
  const places = [...elsewhere].map(([paper, count]) => `${count} in ${names.get(paper) ?? paper}`);
  if (places.length) return `: nothing fits; with the filters at "all": ${places.join(", ")}`;
  return ': nothing fits; ask for a figure ("Fig. 11"), a section, a model, a scheme, or fewer words';
}

for (const field of [...fields, search]) field.addEventListener("input", show);
apply();
