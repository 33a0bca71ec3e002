// Scales of an axis: where a value is drawn, and which values are marked. A place is a value as the scale moves it.
"use strict";

const MARKS = 7; // at most, on an axis

const SCALES = {
  linear: () => ({ place: (v) => v, value: (t) => t, shows: () => true, marks: roundMarks }),
  log: () => ({
    place: (v) => Math.log10(v), value: (t) => 10 ** t, shows: (v) => v > 0,
    marks: (low, high) => (high - low < 1.5 ? roundMarks(10 ** low, 10 ** high) : powers(low, high)),
  }),
  symlog: (c) => ({
    place: (v) => Math.sign(v) * Math.log10(1 + Math.abs(v) / c),
    value: (t) => Math.sign(t) * c * (10 ** Math.abs(t) - 1),
    shows: () => true,
    marks: (low, high) => symmetricMarks(low, high, c),
  }),
};

// Multiples of 1, 2 or 5 times a power of ten.
function roundMarks(low, high) {
  const step = roundStep((high - low) / MARKS);
  const marks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + 1e-300; i++) marks.push(+(i * step).toPrecision(12));
  return marks;
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
}

function powers(low, high) {
  const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9), step = Math.max(1, Math.ceil((last - first) / MARKS));
  const marks = [];
  for (let power = first; power <= last; power += step) marks.push(10 ** power);
  return marks;
}

// Zero and powers of ten on both sides of it; within a decade, round values.
function symmetricMarks(low, high, c) {
  const scale = SCALES.symlog(c);
  const top = Math.max(Math.abs(low), Math.abs(high));
  const positive = powers(Math.log10(c), Math.log10(Math.max(scale.value(top), c))).slice(-MARKS);
  const both = [...positive.map((v) => -v).reverse(), 0, ...positive];
  const inside = both.filter((v) => scale.place(v) >= low && scale.place(v) <= high);
  const apart = inside.filter((v, i) => i === 0 || scale.place(v) - scale.place(inside[i - 1]) > (high - low) / 14);
  return apart.length > 1 ? apart : roundMarks(scale.value(low), scale.value(high));
}
