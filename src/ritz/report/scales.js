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

// Zero, and powers of ten on both sides of it as far as they have room; within a decade, round values.
function symmetricMarks(low, high, c) {
  const scale = SCALES.symlog(c), room = (high - low) / 14;
  const top = Math.max(Math.abs(low), Math.abs(high));
  const powersUp = powers(Math.log10(c), Math.log10(Math.max(scale.value(top), c))).slice(-MARKS);
  const inside = (v) => scale.place(v) >= low && scale.place(v) <= high;
  const zero = inside(0) ? [0] : [];
  const side = (sign) => {
    let last = zero.length ? 0 : -Infinity; // the place of the mark before, nearer to zero
    return powersUp.map((v) => sign * v).filter((v) => {
      const place = Math.abs(scale.place(v)), fits = inside(v) && place - last > room;
      if (fits) last = place;
      return fits;
    });
  };
  const marks = [...side(-1).reverse(), ...zero, ...side(1)];
  return marks.length > 1 ? marks : roundMarks(scale.value(low), scale.value(high));
}
