/* <pack-viz lengths="4,6,8">static table</pack-viz>: the table that packlib.viz.show wrote, brought to life.

   A classic script, because browsers refuse ES modules when a book is opened from disk (file://).
   What is drawn for the first lengths is what the static table says: same cells, same words.
   render({model, el}) is anywidget's signature, so the same picture can move there one day. */
(() => {
  "use strict";

  const MAX_SEQUENCES = 16; // these and the two patterns: as in packlib/viz.py
  const MAX_LENGTH = 24;
  const SEPARATORS = /[\s,;()[\]]+/; // brackets too: a pasted [9, 8, 6] will do
  const NUMBER = /^-?[\d.]+$/; // anything else is a word
  const COLOURS = 9; // packviz.css has as many: pv-colour-0 to pv-colour-8

  /* --- the arithmetic --------------------------------------------------------------------- */

  const split = (text) => (text || "").split(SEPARATORS).filter(Boolean);

  /** What is wrong with the entries, in words; "" if nothing. */
  function problem(entries) {
    if (entries.length < 1) return `No length yet: give 1 to ${MAX_SEQUENCES}.`;
    if (entries.length > MAX_SEQUENCES) {
      return `Give 1 to ${MAX_SEQUENCES} lengths, not ${entries.length}.`;
    }
    const wrong = entries.find((entry) => !fits(entry));
    if (wrong === undefined) return "";
    const zero = Number(wrong) === 0 ? " PyTorch refuses 0 too: leave empty sequences out." : "";
    return `${wrong} does not fit: a length is a whole number from 1 to ${MAX_LENGTH},` +
      ` a word has at most ${MAX_LENGTH} letters.${zero}`;
  }

  function fits(entry) {
    const length = NUMBER.test(entry) ? Number(entry) : [...entry].length;
    return Number.isInteger(length) && length >= 1 && length <= MAX_LENGTH;
  }

  /** Entries to sequences: a number n to n cells a0, a1, ...; a word to its letters. */
  function sequences(entries, names = []) {
    return entries.map((entry, i) => {
      if (!NUMBER.test(entry)) return { name: entry, cells: [...entry] };
      const name = names[i] || String.fromCharCode(97 + i);
      return { name, cells: Array.from({ length: Number(entry) }, (_, t) => name + t) };
    });
  }

  /** Lengths to the packed layout: order, batch_sizes, and the [sequence, step] of each data row. */
  function layout(lengths) {
    const order = lengths.map((_, i) => i).sort((i, j) => lengths[j] - lengths[i]); // stable
    const batchSizes = [];
    for (let t = 0; t < Math.max(...lengths); t++) {
      batchSizes.push(lengths.filter((length) => length > t).length);
    }
    const data = batchSizes.flatMap((size, t) => order.slice(0, size).map((i) => [i, t]));
    return { order, batchSizes, data };
  }

  /** What the padding costs, in the words of packlib.viz. */
  function cost({ order, batchSizes, data }) {
    const cells = order.length * batchSizes.length, real = data.length;
    if (real === cells) return `Every cell of the batch is a real step (${real} of ${cells}): nothing is wasted.`;
    const waste = Math.floor((200 * (cells - real) + cells) / (2 * cells)); // half rounded up
    return `The padded batch has ${cells} cells, but only ${real} real steps: padding wastes ${waste} %.`;
  }

  /* --- the drawing ------------------------------------------------------------------------ */

  function make(tag, attributes = {}, ...children) {
    const namespace = ["svg", "rect", "text"].includes(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
    const element = document.createElementNS(namespace, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  const lit = (on) => (on ? " pv-now" : "");
  const colour = (i) => `pv-real pv-colour-${i % COLOURS}`;

  function gridParts(rows, { order, batchSizes, data }, now) {
    const row = (name, ...cells) => make("tr", {}, make("th", { scope: "row" }, name), ...cells);
    const heading = ["step", ...batchSizes.keys(), "length"].map((text) =>
      make("th", { scope: "col", class: lit(text === now) }, String(text)));
    const body = order.map((i) => row(rows[i].name,
      ...batchSizes.map((_, t) => (t < rows[i].cells.length
        ? make("td", { class: colour(i) + lit(t === now) }, rows[i].cells[t])
        : make("td", { class: "pv-pad" + lit(t === now) }, "pad"))),
      make("td", { class: "pv-sum" }, String(rows[i].cells.length))));
    const sizes = batchSizes.map((size, t) => make("td", { class: "pv-sum" + lit(t === now) }, String(size)));
    return [
      make("caption", {}, "The padded batch, longest sequence first"),
      make("thead", {}, make("tr", {}, ...heading)),
      make("tbody", {}, ...body),
      make("tfoot", {}, row("batch_sizes", ...sizes, make("td", { class: "pv-sum" }, String(data.length)))),
    ];
  }

  /** The data vector: one box a step, so that the eye sees batch_sizes in it. */
  function dataParts(rows, { batchSizes, data }, now) {
    return ["data: ", ...batchSizes.flatMap((_, step) => {
      const cells = data.filter(([, t]) => t === step).flatMap(([i, t]) =>
        [make("span", { class: colour(i) + lit(t === now) }, rows[i].cells[t]), " "]);
      return [make("span", { class: "pv-step" }, ...cells), " "];
    })];
  }

  /** Rows of squares with their sums: one of the two ways to look at the same staircase. */
  function staircase(rows, label) {
    const size = 16, widest = Math.max(...rows.map((squares) => squares.length));
    const width = (widest + 1.5) * size, height = rows.length * size;
    const parts = rows.flatMap((squares, y) => [
      ...squares.map((square, x) => make("rect", {
        x: x * size + 2, y: y * size + 2, width: size - 4, height: size - 4, class: square })),
      make("text", { x: squares.length * size + 4, y: y * size + 12 }, String(squares.length)),
    ]);
    return make("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height }, ...parts);
  }

  function turnParts({ order, batchSizes }, lengths, now) {
    const sorted = order.map((i) => lengths[i]);
    const standing = order.map((i) => Array.from({ length: lengths[i] }, (_, t) => colour(i) + lit(t === now)));
    const lying = batchSizes.map((size, t) => order.slice(0, size).map((i) => colour(i) + lit(t === now)));
    const figure = (rows, label, text) => make("figure", {}, staircase(rows, label), make("figcaption", {}, text));
    const same = String(sorted) === String(batchSizes)
      ? make("p", {}, "This shape is its own mirror image, so here lengths and batch_sizes are equal. They rarely are.")
      : "";
    return [
      figure(standing, `Rows of ${sorted.join(", ")} squares`, "One row a sequence: the sums are the lengths."),
      figure(lying, `Rows of ${batchSizes.join(", ")} squares`, "Turned over, one row a step: the sums are batch_sizes, and row after row it is data."),
      same,
    ];
  }

  /* --- the element ------------------------------------------------------------------------ */

  let count = 0; // several elements on a page: each has its own ids

  function render({ model, el }) {
    const id = `pack-viz-${++count}`;
    const names = split(model.get("names"));
    const input = make("input", {
      id: `${id}-lengths`, type: "text", autocomplete: "off", spellcheck: "false",
      "aria-describedby": `${id}-problem`, value: split(model.get("lengths")).join(", "),
    });
    const slider = make("input", { id: `${id}-step`, type: "range", min: 0, value: 0 });
    const output = make("output", { for: `${id}-step` });
    const alert = make("p", { id: `${id}-problem`, role: "alert", class: "pv-alert" });
    const grid = make("table");
    const scroll = make("div", { class: "pv-scroll", tabindex: 0, role: "group", "aria-label": "The padded batch" }, grid);
    const data = make("p", { class: "pv-data" });
    const turn = make("div", { class: "pv-turn" });
    const step = make("p"), price = make("p");

    el.replaceChildren(
      make("div", { class: "pv-controls" },
        make("label", { for: input.id }, "Lengths, or words"), input,
        make("label", { for: slider.id }, "Time step"), slider, output),
      alert,
      scroll,
      data,
      make("div", { "aria-live": "polite" }, step, price),
      make("details", { class: "pv-more" }, make("summary", {}, "Turn the staircase over"), turn),
    );

    let shown = ""; // the last entries that could be drawn
    function draw() {
      const entries = split(input.value);
      const wrong = problem(entries);
      say(alert, wrong && `${wrong} The picture still shows ${shown}.`);
      input.setAttribute("aria-invalid", Boolean(wrong));
      if (wrong) return;
      shown = entries.join(", ");
      const rows = sequences(entries, names), lengths = rows.map((row) => row.cells.length);
      const packed = layout(lengths), steps = packed.batchSizes.length;
      slider.max = steps - 1;
      const now = Number(slider.value), size = packed.batchSizes[now];
      output.textContent = `${now} (0 to ${steps - 1})`;
      grid.replaceChildren(...gridParts(rows, packed, now));
      data.replaceChildren(...dataParts(rows, packed, now));
      turn.replaceChildren(...turnParts(packed, lengths, now));
      say(step, `Step ${now}: ${size} of ${rows.length} sequences ${size === 1 ? "runs" : "run"}.`);
      say(price, cost(packed));
    }
    input.addEventListener("input", draw);
    slider.addEventListener("input", () => {
      draw();
      const column = grid.querySelector("thead .pv-now");
      scroll.scrollLeft = column.offsetLeft - scroll.clientWidth / 2; // keep it in sight on a phone
    });
    draw();
  }

  /** A screen reader speaks a text when it changes, so it is touched only then. */
  function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  class PackViz extends HTMLElement {
    static split = split;
    static problem = problem;
    static layout = layout;

    connectedCallback() {
      // the parser may not have read the static table yet
      if (document.readyState !== "loading") this.start();
      else document.addEventListener("DOMContentLoaded", () => this.start(), { once: true });
    }

    start() {
      const usable = !problem(split(this.getAttribute("lengths")));
      if (this.started || !usable) return; // moved in the page, or best left as it was written
      this.started = true;
      render({ model: { get: (name) => this.getAttribute(name) }, el: this });
    }
  }

  if (!customElements.get("pack-viz")) customElements.define("pack-viz", PackViz);
})();
