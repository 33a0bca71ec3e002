// Numbers and names as people write them.
"use strict";

const SUPERSCRIPTS = Object.fromEntries([..."0123456789-"].map((digit, i) => [digit, "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"[i]]));
const SYMBOLS = /(?<![\w])([λwGΦΔW])_(max|min|class|cross|own|within|[QKVc])\b/g; // as in typesetting.py
const raised = (power) => [...String(power)].map((digit) => SUPERSCRIPTS[digit]).join("");
const plainly = (v) => v === 0 || (Math.abs(v) >= 1e-3 && Math.abs(v) < 1e5);

// A number: 0.05, 1,000, 2·10⁻⁸.
function written(v, digits = 3) {
  if (v === null || Number.isNaN(v)) return "-";
  return plainly(v) ? (+v.toPrecision(digits)).toLocaleString("en-US", { maximumSignificantDigits: digits }).replace("-", "−") : inPowers(v, digits);
}

function inPowers(v, digits = 3) {
  const [factor, power] = v.toExponential(digits - 1).split("e");
  const times = +factor === 1 ? "" : +factor === -1 ? "−" : `${String(+factor).replace("-", "−")}·`;
  return `${times}10${raised(+power)}`;
}

// The marks of one axis: all decades as powers of ten where one of them has to be.
function marksWritten(values) {
  const decade = (v) => Math.abs(Math.log10(Math.abs(v)) % 1) < 1e-9;
  const alike = values.every((v) => v === 0 || decade(v)) && !values.every(plainly);
  return values.map((v) => (alike && v !== 0 && Math.abs(v) < 1 ? inPowers(v, 1) : written(v)));
}

// A note as it is read: 3e-07 is 3·10⁻⁷ and -1 is −1. A file of numbers keeps what computers read.
function asWritten(note) {
  const signed = note.replaceAll(/(?<![\w.,:/)-])-(?=\d)/g, "−"); // as in typesetting.py
  return signed.replaceAll(/(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)\b/g, (_, factor, power) => `${factor === "1" ? "" : `${factor}·`}10${raised(+power)}`);
}

// A name in its parts, every second of which is a subscript.
function pieces(name) {
  const parts = [];
  let end = 0;
  for (const match of name.matchAll(SYMBOLS)) {
    parts.push(name.slice(end, match.index) + match[1], match[2]);
    end = match.index + match[0].length;
  }
  return [...parts, name.slice(end)];
}

const inHtml = (name) => pieces(name).map((part, i) => (i % 2 ? Object.assign(document.createElement("sub"), { textContent: part }) : part));
