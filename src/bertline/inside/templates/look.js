"use strict";
(async () => {
  const {models} = JSON.parse(document.getElementById("page").textContent), MOST_LINES = 3000;  // drawn in 0.3 s
  const most = (name) => Math.max(...models.map((model) => model[name]));
  const range = (count) => Array.from({length: count}, (_, at) => at);
  const state = {
    view: "heads", layer: 0, head: 0, heads: new Set(range(most("num_heads"))), token: null, side: 0, edges: true,
    blank: 0, between: "all", element: 0,
  };
  let redraws = [];  // of what is on the screen: they follow the pointer and the focus

  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const signed = (value, digits = 2) => (+value.toFixed(digits) || 0).toFixed(digits).replace("-", "\u2212");
  const percent = (share) => (share < 0.01 ? "< 1 %" : `${(100 * share).toFixed(0)} %`);

  /** Makes an element; text goes in as text, never as HTML. */
  function make(tag, options, ...inside) {
    const isDrawn = ["svg", "circle", "text", "title"].includes(tag);
    const made = document.createElementNS(`http://www.w3.org/${isDrawn ? "2000/svg" : "1999/xhtml"}`, tag);
    for (const [name, value] of Object.entries(options ?? {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...inside.filter((one) => one !== null));
    return made;
  }
  const note = (text) => make("p", {class: "what"}, text);
  const name = (model, at) => make("bdi", null, model.tokens[at]);
  const group = (kind, label, ...inside) => make("div", {class: kind, role: "group", "aria-label": label}, ...inside);
  const chip = (text, share, shown = share.toFixed(2)) =>
    make("span", {class: "value", style: `--p:${clamp(share, 0, 1)}`}, make("bdi", null, text), ` ${shown}`);

  /** Reads what `packed` in look.py wrote: base 64, deflated, small multiples of steps. */
  async function unpack(model, text) {
    const deflated = new Blob([Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0))]).stream();
    const inflated = deflated.pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(inflated).arrayBuffer());
    let start = 0;
    for (const array of Object.values(model.arrays)) {
      const size = array.shape.reduce((product, length) => product * length, 1);
      array.values = new Float32Array(size);
      for (let at = 0; at < size; at++) {
        const whole = planes[start + at] | (planes[start + size + at] << 8);
        array.values[at] = ((whole >> 1) ^ -(whole & 1)) * array.steps[Math.floor((at * array.steps.length) / size)];
      }
      start += 2 * size;
    }
  }
  /** Returns a part of an array by its first indices. */
  function part({shape, values}, ...indices) {
    let length = values.length, start = 0;
    indices.forEach((index, axis) => start += index * (length /= shape[axis]));
    return values.subarray(start, start + length);
  }
  /** Says to what the elements of a head's vectors are rounded, and returns how many digits they are worth. */
  function precision(model, layer, head, ...arrays) {
    const step = Math.max(...arrays.map(({steps}) => steps[layer * model.num_heads + head]));
    const text = `To keep the page small, elements are rounded to multiples of ${step.toPrecision(1)}; scores and ` +
      "softmax are the model's own.";
    return [make("p", {class: "what soft"}, text), clamp(Math.round(-Math.log10(step)), 0, 2)];
  }
  /** Returns the probabilities of a head, a row for each token shown: the softmax of its scores. */
  function weights(model, layer, head) {
    model.weights ??= {};
    return model.weights[[layer, head]] ??= range(model.num_shown).map((place) => {
      const scores = part(model.arrays.scores, layer, head, place), top = Math.max(...scores);
      const powers = Array.from(scores, (score) => Math.exp(score - top)), total = sum(powers);
      return powers.map((power) => power / total);
    });
  }

  const css = (property) => getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  const colour = (head, lightness) =>
    `hsl(${Math.round((360 * head) / most("num_heads") + 200) % 360} 72% ${lightness})`;
  /** Paints numbers as cells: positive blue, negative orange, depth by size. */
  function cells(values, columns, deepest, label = null) {
    const rows = Math.ceil(values.length / columns), isHidden = label === null && "true";
    const named = {role: label && "img", "aria-label": label, "aria-hidden": isHidden, style: `--rows:${rows}`};
    const canvas = make("canvas", {width: columns, height: rows, ...named}), context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    const colours = ["--orange", "--blue"].map((property) => css(property).split(" ").map(Number));
    values.forEach((value, at) =>
      image.data.set([...colours[+(value >= 0)], 255 * Math.min(1, Math.abs(value) / (deepest || 1))], 4 * at));
    context.putImageData(image, 0, 0);
    if (label) canvas.addEventListener("mousemove", (event) => {
      const at = columns * Math.floor(share(event.clientY, canvas, "top", "height") * rows)
        + Math.floor(share(event.clientX, canvas, "left", "width") * columns);
      if (at in values) canvas.title = `element ${at}: ${signed(values[at])}`;
    });
    return canvas;
  }
  /** Returns how far a point is across an element, from 0 to 1. */
  function share(point, element, edge, size) {
    const box = element.getBoundingClientRect();
    return clamp((point - box[edge]) / box[size], 0, 0.999);
  }

  /** Lets the arrow keys move among the buttons of a group, of which one is in the order of the tab key. */
  function roving(box, columns = 1) {
    const buttons = [...box.querySelectorAll("button")];
    const enter = (one) => buttons.forEach((each) => { each.tabIndex = each === one ? 0 : -1; });
    enter(box.querySelector('[aria-pressed="true"], [aria-selected="true"]') ?? buttons[0]);
    box.addEventListener("keydown", (event) => {
      const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -1e6, End: 1e6};
      const from = buttons.indexOf(document.activeElement);
      if (!(event.key in moves) || from < 0) return;
      event.preventDefault();
      const to = buttons[clamp(from + moves[event.key], 0, buttons.length - 1)];
      enter(to);
      to.focus();
    });
    return box;
  }
  const set = (changes) => { Object.assign(state, changes); render(); };
  const preview = (focus = {}) => redraws.forEach((redraw) => redraw(focus));
  /** What shows `focus` while the pointer or the focus of the keys is on an element. */
  const previews = (focus) => ({
    onmouseenter: () => preview(focus), onfocus: () => preview(focus),
    onmouseleave: () => preview(), onblur: () => preview(),
  });
  const button = (key, isPressed, onclick, more, ...inside) =>
    make("button", {type: "button", "data-key": key, "aria-pressed": String(isPressed), onclick, ...more}, ...inside);
  function choose(label, key, options) {
    const made = options.map(([value, shown]) => make("option", {value, selected: value === state[key]}, shown));
    const onchange = (event) => set({[key]: options[event.target.selectedIndex][0]});
    return make("label", null, label, make("select", {"data-key": key, onchange}, ...made));
  }
  const numbered = (count) => range(count).map((at) => [at, at + 1]);
  const chooseLayer = () => choose("layer", "layer", numbered(most("num_layers")));
  const chooseHead = () => choose("head", "head", numbered(most("num_heads")));
  const chosenHead = ({num_layers: numLayers, num_heads: numHeads}) =>
    [Math.min(state.layer, numLayers - 1), Math.min(state.head, numHeads - 1)];
  /** Names a model, and the layer and head that it shows where it lacks the chosen ones. */
  function title(model) {
    const kinds = {heads: ["layer"], neuron: ["layer", "head"], table: ["layer", "head"]}[state.view] ?? [];
    const other = kinds.map((kind, axis) => [kind, chosenHead(model)[axis]]).filter(([kind, at]) => at !== state[kind]);
    return [model.name, ...other.map(([kind, at]) => `${kind} ${at + 1} of ${model[`num_${kind}s`]}`)].join(", ");
  }
  const chosenToken = (model) => Math.min(state.token ?? 1, model.num_shown - 1);
  const chips = (model, what, chosen, some) => roving(group("chips", what, ...some.map(([at, changes, shown]) =>
    button(`${what} ${models.indexOf(model)} ${at}`, at === chosen, () => set(changes), null, shown))));
  /** Buttons of the tokens of a model; one that is a blank is also the one whose guesses are shown. */
  function tokens(model) {
    const blanks = model.lens?.are_blanks ? model.lens.places : [], chosen = chosenToken(model);
    return chips(model, "token", chosen, range(model.num_shown).map((at) =>
      [at, {token: at, ...(blanks.includes(at) && {blank: blanks.indexOf(at)})}, name(model, at)]));
  }

  const WHAT = {
    heads: "Each line is a weight of attention: what the token on the left takes from the token on the right. Colour " +
      "is the head, depth the weight next to the largest drawn. Weights below 5 %, or 1 / tokens if that is less, " +
      `are left out (of a chosen token, below a fifth of that), and all but the ${MOST_LINES} largest.`,
    model: "Each map is a head: a row for each token that reads, a column for each token that is read; the bluest " +
      "are its largest weights. Choose one to open it in heads.",
    neuron: "A head compares the query q of the chosen token with the key k of every token: the products of their " +
      "elements, summed (Σ) and divided by √d, are the scores, and the softmax of all scores is the attention. " +
      "Positive is blue, negative orange, depth is size.",
    table: "The attention of one head in numbers: softmax(QKᵀ / √d), whose rows sum to one, times the values V is " +
      "the output of the head.",
    layers: "How the vector of a token moves among the others from layer to layer, and which token the model would " +
      "put at a place if it had to say so after each layer.",
    embeddings: "What the first layer reads: the embeddings of the token, of its segment and of its position are " +
      "added and normalised.",
  };
  const CONTROLS = {
    heads() {
      const all = range(most("num_heads")), [{tokens: texts, are_special: isEdge, segments}] = models;
      const toggled = (head) => new Set(all.filter((one) => state.heads.has(one) !== (one === head)));
      const chips = all.map((head) => button(
        `head ${head}`, state.heads.has(head), () => set({heads: toggled(head)}),
        {"aria-label": `head ${head + 1}`, ...previews({head})},
        make("span", {class: "swatch", style: `--of:${colour(head, "var(--lightness)")}`}), head + 1));
      const every = (label, some) =>
        make("button", {type: "button", "data-key": label, onclick: () => set({heads: new Set(some)})}, label);
      const edges = [...new Set(texts.filter((_, at) => isEdge[at]))].join(" and ");
      const onchange = (event) => set({edges: event.target.checked});
      const pairs = [["all", "all"], ["same", "within a text"], ["across", "between the texts"],
        ["ab", "first to second"], ["ba", "second to first"]];
      const box = make("input", {type: "checkbox", "data-key": "edges", checked: state.edges, onchange});
      return [
        chooseLayer(), roving(group("chips", "Heads", "heads", ...chips, every("all", all), every("none", []))),
        make("label", null, box, `${edges} shown`),
        segments.some(Boolean) ? choose("weights", "between", pairs) : null,
      ];
    },
    neuron() {
      const max = Math.max(...models.map(({arrays: {query}}) => (query ? query.shape[3] - 1 : -1)));
      const oninput = (event) => { state.element = +event.target.value; preview(); };
      return [chooseLayer(), chooseHead(), max >= 0 ? make("label", null, "element", make("input", {
        type: "range", min: 0, max, value: state.element, "data-key": "element", oninput})) : null];
    },
    table: () => [chooseLayer(), chooseHead()],
  };
  const PASSES = {
    all: () => true, same: (from, to) => from === to, across: (from, to) => from + to === 1,
    ab: (from, to) => from < to, ba: (from, to) => from > to,
  };

  const VIEWS = {heads, model: maps, neuron, table, layers, embeddings};
  function heads(model) {
    const [layer] = chosenHead(model), places = range(model.tokens.length);
    const shown = places.filter((at) => state.edges || !model.are_special[at]);
    const canvas = make("canvas", {"aria-hidden": "true"}), out = make("p", {class: "readout", "aria-live": "polite"});
    const isChosen = (at, side) => state.token === at && state.side === side;
    function column(side, title, some) {
      const buttons = new Map(some.map((at) => [at, button(
        `side ${models.indexOf(model)} ${side} ${at}`, isChosen(at, side),
        () => set({token: isChosen(at, side) ? null : at, side}),
        {class: model.segments[at] ? "second" : null, ...previews({at, side})}, name(model, at))]));
      return [roving(group("side", title, make("b", null, title), ...buttons.values())), buttons];
    }
    const [left, readers] = column(0, "reads", shown.filter((at) => at < model.num_shown));
    const [right, read] = column(1, "is read", shown);
    function draw({head = null, at = state.token, side = state.side} = {}) {
      if (!(side ? read : readers).has(at)) at = null;  // a token that the other model has, or that is hidden
      const some = range(model.num_heads).filter((one) => (head === null ? state.heads.has(one) : one === head));
      const box = canvas.getBoundingClientRect(), context = canvas.getContext("2d"), lightness = css("--lightness");
      [canvas.width, canvas.height] = [box.width * devicePixelRatio, box.height * devicePixelRatio];
      context.scale(devicePixelRatio, devicePixelRatio);
      const middles = (buttons) => [...buttons].map(([place, one]) => {
        const {top, bottom} = one.getBoundingClientRect();
        return [place, (top + bottom) / 2 - box.top];
      });
      const [from, to] = [middles(readers), middles(read)], means = new Map(), apart = Math.min(2.5, 14 / some.length);
      const lines = [], least = Math.min(0.05, 0.999 / model.num_tokens) * (at === null ? 1 : 0.2);
      some.forEach((one, number) => {
        const rows = weights(model, layer, one), shift = (number - (some.length - 1) / 2) * apart;
        for (const [i, start] of from) for (const [j, end] of to) {
          if (at !== null && at !== (side ? j : i)) continue;
          if (!PASSES[state.between](model.segments[i], model.segments[j])) continue;
          const weight = rows[i][j], other = side ? i : j;
          means.set(other, (means.get(other) ?? 0) + weight / some.length);
          if (weight >= least) lines.push([weight, start + shift, end + shift, colour(one, lightness)]);
        }
      });
      const top = largest(lines.map(([weight]) => weight)), {width} = box;
      for (const [weight, start, end, tint] of lines.sort(([a], [b]) => a - b).slice(-MOST_LINES)) {
        Object.assign(context, {strokeStyle: tint, globalAlpha: weight / top, lineWidth: 1 + 2 * weight});
        context.stroke(new Path2D(`M0 ${start}C${0.35 * width} ${start} ${0.65 * width} ${end} ${width} ${end}`));
      }
      [readers, read].forEach((buttons, here) => buttons.forEach((one, place) => {
        const depth = here === side ? +(place === at) : means.get(place) ?? 0;
        one.style.setProperty("--p", at === null ? 0 : depth.toFixed(3));
      }));
      const mean = some.length > 1 ? `, mean of ${some.length} heads: ` : `, head ${some[0] + 1}: `;
      const best = [...means].sort((a, b) => b[1] - a[1]).slice(0, 6);
      const second = model.segments.some(Boolean) ? " An orange edge marks the second text." : "";
      out.replaceChildren(...(!some.length ? [`None of the ${model.num_heads} heads is chosen.`] :
        at === null ? [`Point at a token, or choose it, to see its weights alone.${second}`] :
        [make("b", null, name(model, at)), side ? " is read by" : " reads", mean,
          ...best.map(([place, weight]) => chip(model.tokens[place], weight))]));
    }
    redraws.push(draw);
    return [make("div", {class: "heads"}, left, canvas, right), out];
  }

  /** Says what a head mostly reads, as the mean over the tokens. */
  function character(model, rows) {
    const shares = {}, near = {[-1]: "the token before", 0: "the token itself", 1: "the token behind"};
    rows.forEach((row, i) => row.forEach((weight, j) => {
      const kind = model.are_special[j] ? model.tokens[j] : near[j - i] ?? "other tokens";
      shares[kind] = (shares[kind] ?? 0) + weight / rows.length;
    }));
    const [kind, weight] = Object.entries(shares).sort((a, b) => b[1] - a[1])[0];
    return `${percent(weight)} on ${kind}`;
  }
  function maps(model) {
    const hint = "Point at a map, or move there with the arrow keys.";
    const out = make("p", {class: "readout", "aria-live": "polite"}, hint);
    const count = model.tokens.length, all = range(model.num_heads), width = clamp(620 / all.length, 84, 260);
    const grid = group("maps", "Heads of all layers", make("span"), ...all.map((head) => make("span", null, head + 1)));
    grid.style.gridTemplateColumns = `1.6em repeat(${all.length}, minmax(0, ${width}px))`;
    for (const layer of range(model.num_layers)) {
      grid.append(make("span", null, layer + 1), ...all.map((head) => {
        const rows = weights(model, layer, head), isLast = layer === state.layer && head === state.head;
        const says = `layer ${layer + 1}, head ${head + 1}: ${character(model, rows)}`;
        const open = () => {
          set({view: "heads", layer, head, heads: new Set([head])});
          document.getElementById("tab-heads").focus();
        };
        const show = () => out.replaceChildren(says), key = `map ${models.indexOf(model)} ${layer} ${head}`;
        return button(key, isLast, open, {title: says, "aria-label": says, onmouseenter: show, onfocus: show},
          cells(rows.flat(), count, Math.max(4 / count, largest(rows.map(largest)))));
      }));
    }
    return [roving(grid, model.num_heads), out];
  }

  function neuron(model) {
    const [layer, head] = chosenHead(model), chosen = chosenToken(model), {query, key, scores} = model.arrays;
    if (!query) return [note(model.missing.vectors)];
    const channels = query.shape[3], asked = part(query, layer, head, chosen);
    const row = weights(model, layer, head)[chosen], scaled = part(scores, layer, head, chosen);
    const keys = range(model.num_shown).map((at) => part(key, layer, head, at));
    const products = keys.map((one) => one.map((value, at) => value * asked[at]));
    const deepest = largest([asked, ...keys].map(largest)), deepestProduct = largest(products.map(largest));
    const strip = (values, depth, label) => make("div", {class: "strip"}, cells(values, channels, depth, label));
    const number = (text) => make("span", {class: "number"}, text), here = make("span", {class: "here"});
    const [says, digits] = precision(model, layer, head, query, key);
    const elements = keys.map(() => number(""));
    const titles = Object.entries({
      "key of": "first", k: "wide", "q × k": "wide", element: "", "Σ / √d": "", softmax: "", "": "wide",
    });
    const list = make("div", {class: "neuron"},
      make("div", null, make("span", {class: "token"}, "q of ", make("b", null, name(model, chosen))),
        strip(asked, deepest, "q"), here),
      make("div", null, ...titles.map(([title, kind]) => make("span", {class: `head ${kind}`}, title))),
      ...keys.map((one, at) => make("div", null,
        make("span", {class: "token"}, name(model, at)),
        strip(one, deepest, "k"), strip(products[at], deepestProduct, "q × k"),
        elements[at], number(signed(scaled[at])), number(row[at].toFixed(3)),
        make("div", {class: "track"}, make("div", {class: "bar", style: `--p:${row[at]}`})))));
    list.addEventListener("mousemove", (event) => {
      const under = event.target.closest(".strip");
      if (!under) return;
      const element = Math.floor(share(event.clientX, under, "left", "width") * channels);
      document.querySelector('[data-key="element"]').value = state.element = element;
      preview();
    });
    redraws.push(() => {
      const element = Math.min(state.element, channels - 1);
      list.style.setProperty("--at", element / channels);
      list.style.setProperty("--of", channels);
      here.replaceChildren(`element ${element} of 0 to ${channels - 1}: q is ${signed(asked[element], digits)}`);
      elements.forEach((cell, at) => cell.replaceChildren(signed(products[at][element], digits)));
    });
    return [tokens(model), list, says];
  }

  /** Rounds a row that sums to one so that what is shown sums to one as well: the largest remainders go up. */
  function rounded(row, digits) {
    const unit = 10 ** digits, whole = row.map((value) => Math.floor(value * unit));
    const order = range(row.length).sort((a, b) => row[b] * unit - whole[b] - row[a] * unit + whole[a]);
    order.slice(0, Math.round(unit - sum(whole))).forEach((at) => whole[at]++);
    return whole.map((value) => value / unit);
  }
  function table(model) {
    const [layer, head] = chosenHead(model), chosen = chosenToken(model), {value} = model.arrays;
    const rows = weights(model, layer, head), parts = [tokens(model)];
    function add(title, columns, lines, marked, digits) {
      const isSummed = digits === 3, deepest = isSummed ? 1 : largest(lines.map(largest)) || 1;
      const total = (tag, text) => (isSummed ? make(tag, {class: "sum"}, text) : null);
      const cell = (number) => {
        const depth = ((0.42 * Math.abs(number)) / deepest).toFixed(3), sign = number < 0 ? "--orange" : "--blue";
        return make("td", {style: `background:rgb(var(${sign}) / ${depth})`}, signed(number, digits));
      };
      const heading = (scope, what) => make("th", {scope}, what);
      const body = lines.map((line, at) => make("tr", {class: at === marked && "chosen"},
        heading("row", name(model, at)), ...Array.from(line, cell), total("td", sum(line).toFixed(digits))));
      const titles = columns.map((column) => heading("col", make("bdi", null, column)));
      const top = make("tr", null, make("th"), ...titles, total("th", "Σ"));
      parts.push(make("h3", null, `${title} [${lines.length} × ${columns.length}]`),
        make("div", {class: "scroll numbers", tabindex: 0, role: "region", "aria-label": title},
          make("table", null, make("thead", null, top), make("tbody", null, ...body))));
    }
    add("softmax(QKᵀ / √d)", model.tokens, rows.map((row) => rounded(row, 3)), chosen, 3);
    if (!value) return [...parts, note(model.missing.vectors)];
    const [says, digits] = precision(model, layer, head, value), channels = range(value.shape[3]);
    const values = range(model.num_shown).map((at) => part(value, layer, head, at));
    add("× V", channels, values, null, digits);
    const output = rows.map((row) => channels.map((at) => sum(row.map((weight, from) => weight * values[from][at]))));
    add("= output of the head", channels, output, chosen, digits);
    return [...parts, says];
  }

  const after = (layer) => (layer ? `layer ${layer}` : "input");
  /** Returns the three tokens nearest to one after a layer, and their similarity. */
  function nearest(model, layer, chosen) {
    const row = part(model.arrays.similarity, layer, chosen);
    const others = range(model.num_shown).filter((at) => at !== chosen);
    return others.sort((a, b) => row[b] - row[a]).slice(0, 3).map((at) => [at, row[at]]);
  }
  function picture(model, layer, chosen) {
    const width = 220, height = 150, {map} = model.arrays, widest = largest(map.values), taken = [];
    const near = nearest(model, layer, chosen).map(([at]) => at), marked = [chosen, ...near];
    const texts = marked.map((at) => model.tokens[at]);
    const label = `${after(layer)}: nearest to ${texts[0]} are ${texts.slice(1).join(", ")}`;
    const made = make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
    const place = (at) => [width, height].map((size, axis) =>
      size * (0.5 + (0.45 * part(map, layer, at)[axis]) / widest));
    for (const at of [...range(model.num_shown).filter((one) => !marked.includes(one)), ...near, chosen]) {
      const [cx, cy] = place(at), kind = at === chosen ? "chosen" : near.includes(at) ? "near" : "";
      if (kind) taken.push({top: cy + 4, left: cx - 4, right: cx + 4});
      made.append(make("circle", {cx, cy, r: kind ? 4 : 2.5, class: kind}, make("title", null, model.tokens[at])));
    }
    for (const at of marked) {
      const [x, y] = place(at), letters = [...model.tokens[at]], isLeft = x > width / 2;
      const text = letters.length > 18 ? `${letters.slice(0, 17).join("")}…` : model.tokens[at];
      const wide = 7 * text.length, [left, right] = isLeft ? [x - 6 - wide, x - 6] : [x + 6, x + 6 + wide];
      const tops = [4, -8, 16, -20, 28, -32, 40, -44].map((down) => clamp(y + down, 9, height - 3));
      const top = tops.find((free) =>
        !taken.some((box) => Math.abs(box.top - free) < 11 && box.left < right && box.right > left));
      if (top === undefined) continue;
      taken.push({top, left, right});
      made.append(make("text", {x: isLeft ? right : left, y: top, "text-anchor": isLeft ? "end" : "start"}, text));
    }
    return make("figure", null, make("figcaption", null, after(layer)), made);
  }
  function layers(model) {
    const chosen = chosenToken(model), depths = range(model.num_layers + 1), {lens} = model;
    const lines = (chips) => make("table", {class: "guesses"}, make("tbody", null, ...depths.map((layer) =>
      make("tr", null, make("th", {scope: "row"}, after(layer)), make("td", null, ...chips(layer))))));
    const parts = [
      tokens(model), make("h3", null, "Its neighbours"),
      note("Cosine of the vectors after each layer, less their mean in that layer."),
      lines((layer) => nearest(model, layer, chosen).map(([at, near]) => chip(model.tokens[at], near, signed(near)))),
      make("h3", null, "On one map for all layers"),
      note("The chosen token is orange, its three neighbours blue. Two directions show only a part of what differs: " +
        "the numbers above are the truth."),
      make("div", {class: "places"}, ...depths.map((layer) => picture(model, layer, chosen))),
      make("h3", null, "What fills the place"),
    ];
    if (!lens) return [...parts, note(model.missing.lens)];
    const place = lens.are_blanks ? Math.min(state.blank, lens.places.length - 1) : chosen;
    const guesses = lines((layer) => lens.ids[layer][place].map((id, rank) => {
      const probability = lens.probabilities[layer][place][rank];
      return chip(lens.words[id], probability, percent(probability));
    }));
    const what = lens.are_blanks ? "blank" : "token";
    const head = `The model's head reads the vector of the chosen ${what} after each layer (“logit lens”). `;
    if (lens.are_blanks) {
      const choice = chips(model, what, place, lens.places.map((at, blank) => (at < model.num_shown ?
        [blank, {blank, token: at}, `[MASK] ${blank + 1}`] : [blank, {blank}, `[MASK] ${blank + 1} (not shown)`])));
      return [...parts, note(`${head}It was trained to read the last one alone.`), choice, guesses];
    }
    const hint = "It is no blank: the model sees it. Write ___ in the text to see a blank filled.";
    return [...parts, note(`${head}${hint}`), guesses];
  }

  function embeddings(model) {
    const chosen = chosenToken(model), {token, norm} = model.arrays;
    const {embedding_rows: rows, embedding_shapes: shapes} = model;
    if (!token) return [note(model.missing.embeddings)];
    const size = token.shape[1], columns = Math.ceil(size / Math.ceil(size / 128));
    const kinds = ["token", "segment", "position"].filter((kind) => kind in rows);
    const vectors = kinds.map((kind) => part(model.arrays[kind], kind === "segment" ? rows.segment[chosen] : chosen));
    const added = range(size).map((at) => sum(vectors.map((vector) => vector[at]))), mean = sum(added) / size;
    const deviation = Math.sqrt(sum(added.map((value) => (value - mean) ** 2)) / size + model.norm_epsilon);
    const input = added.map((value, at) => ((value - mean) / deviation) * part(norm, 0)[at] + part(norm, 1)[at]);
    const deepest = largest([...vectors, added].map(largest));
    const line = (title, what, values, depth) => [
      make("div", null, make("b", null, title), make("small", null, what)),
      make("div", null, make("div", {class: "strip"}, cells(values, columns, depth, title)), make("small", null,
        Array.from(values.slice(0, 4), (value) => signed(value)).join(", "),
        `, … · length ${Math.hypot(...values).toFixed(2)}`)),
    ];
    const list = make("div", {class: "added"},
      ...kinds.flatMap((kind, at) =>
        line(`${at ? "+ " : ""}${kind}`, `row ${rows[kind][chosen]} of [${shapes[kind]}]`, vectors[at], deepest)),
      ...line("= sum", `[${size}]`, added, deepest),
      ...line("LayerNorm", `[${size}], a row of the input [${model.num_shown} × ${size}]`, input, largest(input)));
    return [tokens(model), list, kinds.length < 3 ? note("This model has no segment embeddings.") : ""];
  }

  function render() {
    const key = document.activeElement?.dataset?.key, panel = document.getElementById("view");
    redraws = [];
    const tabs = Object.keys(VIEWS).map((view) => make("button", {
      type: "button", role: "tab", id: `tab-${view}`, "data-key": view, "aria-controls": "view",
      "aria-selected": String(view === state.view), onclick: () => set({view}),
    }, view));
    const list = roving(make("div", {role: "tablist", "aria-label": "Views"}, ...tabs));
    document.getElementById("tabs").replaceChildren(list);
    panel.setAttribute("aria-labelledby", `tab-${state.view}`);
    const shown = models.map((model) =>
      make("article", null, models.length > 1 ? make("h2", null, title(model)) : null, ...VIEWS[state.view](model)));
    const controls = (CONTROLS[state.view]?.() ?? []).filter(Boolean);
    panel.replaceChildren(
      note(WHAT[state.view]), make("div", {class: "controls"}, ...controls), make("div", {class: "models"}, ...shown));
    preview();
    if (key) document.querySelector(`[data-key="${key}"]`)?.focus({preventScroll: true});
  }

  if (!("DecompressionStream" in window)) {
    document.getElementById("view").append("This page needs a browser of 2023 or later.");
    return;
  }
  const numbers = [...document.querySelectorAll("script.numbers")].map((one) => one.textContent.trim());
  await Promise.all(models.map((model, place) => unpack(model, numbers[place])));
  render();
  addEventListener("resize", () => preview());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
})();
