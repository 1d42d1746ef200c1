"use strict";
(async () => {
  const page = JSON.parse(document.getElementById("page").textContent);
  const state = {view: "heads", layer: 0, head: 0, heads: null, token: null, side: 0, edges: true, between: "all", element: 0};
  const motto = (text) => make("p", {class: "what"}, text);
  const signed = (value, digits = 2) => value.toFixed(digits).replace("-", "\u2212");
  const percent = (share) => (share < 0.01 ? "< 1 %" : `${(100 * share).toFixed(0)} %`);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  let redraws = [];

  /** Makes an element; text goes in as text, never as HTML. */
  function make(tag, options = {}, ...inside) {
    const drawn = ["svg", "circle", "text", "title"].includes(tag);
    const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...inside.filter((one) => one !== null));
    return made;
  }

  /** Reads what `packed` in look.py wrote: base 91, deflated, small multiples of steps. */
  async function unpack(model, text) {
    const digit = new Uint8Array(128), bytes = new Uint8Array(Math.ceil((text.length / 2) * 13 / 8));
    let known = 0, bits = 0, held = 0, end = 0;
    for (let code = 33; code < 127; code++) if (!"&<>".includes(String.fromCharCode(code))) digit[code] = known++;
    for (let at = 0; at < text.length; at += 2) {
      held = (held << 13) | (digit[text.charCodeAt(at)] * 91 + digit[text.charCodeAt(at + 1)]);
      for (bits += 13; bits >= 8; held &= (1 << bits) - 1) bytes[end++] = held >> (bits -= 8);
    }
    const stream = new Blob([bytes.subarray(0, model.num_bytes)]).stream().pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer());
    let start = 0;
    for (const [name, {shape, steps}] of Object.entries(model.arrays)) {
      const size = shape.reduce((product, length) => product * length, 1), values = new Float32Array(size);
      for (let at = 0; at < size; at++) {
        const whole = planes[start + at] | (planes[start + size + at] << 8);
        values[at] = ((whole >> 1) ^ -(whole & 1)) * steps[Math.floor((at * steps.length) / size)];
      }
      start += 2 * size;
      model[name] = {shape, values};
    }
  }
  /** Returns a part of an array by its first indices. */
  const part = ({shape, values}, ...indices) => {
    let length = values.length, at = 0;
    indices.forEach((index, axis) => { length /= shape[axis]; at += index * length; });
    return values.subarray(at, at + length);
  };
  function softmax(scores) {
    const most = Math.max(...scores), powers = Array.from(scores, (score) => Math.exp(score - most)), total = sum(powers);
    return powers.map((power) => power / total);
  }
  /** Returns the probabilities of a head, a row for each shown token. */
  function weights(model, layer, head) {
    model.known ??= {};
    return (model.known[`${layer} ${head}`] ??= Array.from({length: model.num_shown}, (_, row) =>
      softmax(part(model.scores, layer, head, row))));
  }

  const rgb = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim().split(/\s+/).map(Number);
  const tint = (value, most, deepest) =>
    `rgb(var(${value < 0 ? "--orange" : "--blue"}) / ${(deepest * Math.min(1, Math.abs(value) / (most || 1))).toFixed(3)})`;
  const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  /** Paints numbers as cells: positive blue, negative orange, depth by size. */
  function cells(values, columns, most, label) {
    const rows = Math.ceil(values.length / columns);
    const canvas = make("canvas", {width: columns, height: rows, role: label ? "img" : null, "aria-label": label, "aria-hidden": !label && "true"});
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
    const colours = [rgb("--orange"), rgb("--blue")];
    values.forEach((value, at) => image.data.set([...colours[+(value >= 0)], 255 * Math.min(1, Math.abs(value) / (most || 1))], 4 * at));
    context.putImageData(image, 0, 0);
    if (label) canvas.addEventListener("mousemove", (event) => {
      const {left, top, width, height} = canvas.getBoundingClientRect();
      const at = Math.floor(((event.clientX - left) / width) * columns) + columns * Math.floor(((event.clientY - top) / height) * rows);
      if (at in values) canvas.title = `element ${at}: ${signed(values[at])}`;
    });
    return canvas;
  }
  const colour = (head, count) => `hsl(${Math.round((360 * head) / count + 200) % 360} 72% var(--lightness))`;
  const value = (name, p, shown = p.toFixed(2)) => make("span", {class: "value", style: `--p:${Math.min(1, Math.max(0, p))}`}, make("bdi", {}, name), ` ${shown}`);

  /** Lets arrow keys move among the buttons of a group, of which one is in the tab order. */
  function roving(group, columns = 1) {
    const buttons = [...group.querySelectorAll("button")];
    const current = buttons.findIndex((one) => one.matches('[aria-pressed="true"], [aria-selected="true"]'));
    buttons.forEach((one, place) => { one.tabIndex = place === Math.max(0, current) ? 0 : -1; });
    group.addEventListener("keydown", (event) => {
      const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -1e6, End: 1e6};
      const from = buttons.indexOf(document.activeElement);
      if (!(event.key in moves) || from < 0) return;
      event.preventDefault();
      const to = buttons[Math.max(0, Math.min(buttons.length - 1, from + moves[event.key]))];
      buttons.forEach((one) => { one.tabIndex = one === to ? 0 : -1; });
      to.focus();
    });
    return group;
  }
  const set = (changes) => { Object.assign(state, changes); render(); };
  function choose(label, key, count) {
    const options = Array.from({length: count}, (_, at) => make("option", {value: at, selected: at === state[key]}, at + 1));
    return make("label", {}, label, make("select", {"data-key": key, onchange: (event) => set({[key]: +event.target.value})}, ...options));
  }
  const most = (name) => Math.max(...page.models.map((model) => model[name]));
  const layers = () => choose("layer", "layer", most("num_layers"));
  const clamped = (model) => [Math.min(state.layer, model.num_layers - 1), Math.min(state.head, model.num_heads - 1)];
  const token = (model) => Math.min(state.token ?? Math.min(1, model.num_shown - 1), model.num_shown - 1);
  /** Buttons of the tokens of a model, or of some of them. */
  function tokens(model, places = model.tokens.slice(0, model.num_shown).map((_, at) => at), chosen = token(model)) {
    const buttons = places.map((at) => make("button", {
      type: "button", "data-key": `token ${page.models.indexOf(model)} ${at}`, "aria-pressed": String(at === chosen),
      onclick: () => set({token: at}),
    }, make("bdi", {}, model.tokens[at])));
    return roving(make("div", {class: "chips", role: "group", "aria-label": "Token"}, ...buttons));
  }

  const views = {
    heads: {
      what: "Each line is a weight of attention: what the token on the left takes from the token on the right. Colour is the head, depth the weight.",
      controls() {
        const count = most("num_heads"), all = Array.from({length: count}, (_, head) => head);
        const chips = all.map((head) => make("button", {
          type: "button", "data-key": `head ${head}`, "aria-pressed": String(state.heads.has(head)), "aria-label": `head ${head + 1}`,
          onclick: () => { state.heads.has(head) ? state.heads.delete(head) : state.heads.add(head); render(); },
          onmouseenter: () => preview({head}), onfocus: () => preview({head}), onmouseleave: () => preview(), onblur: () => preview(),
        }, make("span", {class: "swatch", style: `--of:${colour(head, count)}`}), head + 1));
        const every = (label, heads) => make("button", {type: "button", "data-key": label, onclick: () => set({heads: new Set(heads)})}, label);
        const pairs = {all: "all", same: "within a text", across: "between the texts", ab: "first to second", ba: "second to first"};
        const options = Object.entries(pairs).map(([key, name]) => make("option", {value: key, selected: key === state.between}, name));
        const isPair = page.models[0].segments.some((segment) => segment);
        return [
          layers(),
          roving(make("div", {class: "chips", role: "group", "aria-label": "Heads", style: "margin:0"}, "heads", ...chips, every("all", all), every("none", []))),
          make("label", {}, make("input", {type: "checkbox", "data-key": "edges", checked: state.edges, onchange: (event) => set({edges: event.target.checked})}),
            `${[...new Set(page.models[0].tokens.filter((_, at) => page.models[0].are_special[at]))].join(" and ")} shown`),
          isPair ? make("label", {}, "weights", make("select", {"data-key": "between", onchange: (event) => set({between: event.target.value})}, ...options)) : null,
        ];
      },
      body: headsBody,
    },
    model: {
      what: "Each map is a head: a row for each token that reads, a column for each token that is read; the bluest are its largest weights. Choose one to open it in heads.",
      controls: () => [],
      body: modelBody,
    },
    neuron: {
      what: "A head compares the query q of the chosen token with the key k of every token: the products of their elements, summed and divided by √d, are the score, and the softmax of all scores is the attention. Positive is blue, negative orange, depth by size.",
      controls() {
        const channels = page.models.find((model) => model.query)?.query.shape[3];
        const slide = (event) => { state.element = +event.target.value; redraws.forEach((redraw) => redraw()); };
        return [layers(), choose("head", "head", most("num_heads")), channels ? make("label", {}, "element", make("input", {
          type: "range", min: 0, max: channels - 1, value: state.element, "data-key": "element", "aria-label": "element of q and k", oninput: slide})) : null];
      },
      body: neuronBody,
    },
    table: {
      what: "The attention of one head in numbers: softmax(QKᵀ / √d), whose rows sum to one, times the values V is the output of the head.",
      controls: () => [layers(), choose("head", "head", most("num_heads"))],
      body: tableBody,
    },
    layers: {
      what: "How the vector of a token moves among the others from layer to layer, and which token the model would put at a place if it had to say so after each layer.",
      controls: () => [],
      body: layersBody,
    },
    embeddings: {
      what: "What the first layer reads: the embeddings of the token, of its segment and of its position are added and normalised.",
      controls: () => [],
      body: embeddingsBody,
    },
  };

  function preview(focus = {}) { redraws.forEach((redraw) => redraw(focus)); }

  function headsBody(model) {
    const [layer] = clamped(model), shown = (at) => state.edges || !model.are_special[at];
    const places = model.tokens.map((_, at) => at).filter(shown), number = page.models.indexOf(model);
    const canvas = make("canvas", {"aria-hidden": "true"}), out = make("p", {class: "readout", "aria-live": "polite"});
    const side = (which, title, some) => {
      const buttons = some.map((at) => make("button", {
        type: "button", class: model.segments[at] ? "second" : null, "data-key": `side ${number} ${which} ${at}`,
        "aria-pressed": String(state.token === at && state.side === which),
        onclick: () => set(state.token === at && state.side === which ? {token: null} : {token: at, side: which}),
        onmouseenter: () => preview({at, which}), onfocus: () => preview({at, which}), onmouseleave: () => preview(), onblur: () => preview(),
      }, make("bdi", {}, model.tokens[at])));
      return [roving(make("div", {class: "side", role: "group", "aria-label": title}, make("b", {}, title), ...buttons)), new Map(some.map((at, place) => [at, buttons[place]]))];
    };
    const [left, from] = side(0, "reads", places.filter((at) => at < model.num_shown));
    const [right, to] = side(1, "is read", places);
    const segment = (at) => model.segments[at];
    const passes = {
      all: () => true, same: (i, j) => segment(i) === segment(j), across: (i, j) => segment(i) !== segment(j),
      ab: (i, j) => !segment(i) && segment(j), ba: (i, j) => segment(i) && !segment(j),
    }[state.between];
    function draw(focus = {}) {
      const active = "head" in focus ? [focus.head] : [...state.heads].sort((a, b) => a - b);
      const heads = active.filter((head) => head < model.num_heads).map((head) => [head, weights(model, layer, head)]);
      const [at, which] = "at" in focus ? [focus.at, focus.which] : [state.token, state.side];
      const scale = devicePixelRatio, box = canvas.getBoundingClientRect(), context = canvas.getContext("2d");
      [canvas.width, canvas.height] = [box.width * scale, box.height * scale];
      context.scale(scale, scale);
      const height = (button) => { const edge = button.getBoundingClientRect(); return (edge.top + edge.bottom) / 2 - box.top; };
      const tops = [from, to].map((buttons) => new Map([...buttons].map(([place, button]) => [place, height(button)])));
      const gap = Math.min(2.5, 14 / Math.max(1, heads.length)), means = new Map();
      const style = getComputedStyle(document.documentElement).getPropertyValue("--lightness");
      heads.forEach(([head, rows], place) => {
        context.strokeStyle = colour(head, most("num_heads")).replace("var(--lightness)", style);
        const shift = (place - (heads.length - 1) / 2) * gap;
        for (const [i, y] of tops[0]) for (const [j, end] of tops[1]) {
          const isChosen = at === null || at === undefined || (which ? j === at : i === at);
          if (!isChosen || !passes(i, j)) continue;
          const weight = rows[i][j], other = which ? i : j;
          means.set(other, (means.get(other) ?? 0) + weight / heads.length);
          if (weight < 0.01) continue;
          context.globalAlpha = Math.min(1, weight * (at === null || at === undefined ? 0.8 : 1.3));
          context.lineWidth = 1 + 2 * weight;
          context.beginPath();
          context.moveTo(0, y + shift);
          context.bezierCurveTo(box.width * 0.35, y + shift, box.width * 0.65, end + shift, box.width, end + shift);
          context.stroke();
        }
      });
      const isOne = at !== null && at !== undefined;
      for (const [buttons, here] of [[from, 0], [to, 1]]) {
        for (const [place, button] of buttons) {
          const depth = isOne ? (here === which ? +(place === at) : means.get(place) ?? 0) : 0;
          button.style.setProperty("--p", depth.toFixed(3));
        }
      }
      const best = isOne ? [...means].sort((a, b) => b[1] - a[1]).slice(0, 6) : [];
      const mean = heads.length > 1 ? `, mean of ${heads.length} heads` : heads.length ? `, head ${heads[0][0] + 1}` : "";
      out.replaceChildren(...(!heads.length ? ["No head is chosen."] : !isOne ? ["Point at a token, or choose it, to see its weights alone."] :
        [make("b", {}, make("bdi", {}, model.tokens[at])), which ? ` is read by${mean}: ` : ` reads${mean}: `, ...best.map(([place, weight]) => value(model.tokens[place], weight))]));
    }
    redraws.push(draw);
    return [make("div", {class: "heads"}, left, canvas, right), out];
  }

  /** Says what a head mostly reads, as the mean over tokens. */
  function character(model, layer, head) {
    const rows = weights(model, layer, head), shares = {};
    rows.forEach((row, i) => row.forEach((weight, j) => {
      const name = model.are_special[j] ? model.tokens[j] : {[-1]: "the token before", 0: "the token itself", 1: "the token behind"}[j - i] ?? "other tokens";
      shares[name] = (shares[name] ?? 0) + weight / rows.length;
    }));
    const [name, share] = Object.entries(shares).sort((a, b) => b[1] - a[1])[0];
    return `${percent(share)} on ${name}`;
  }
  function modelBody(model) {
    const out = make("p", {class: "readout", "aria-live": "polite"}, "Point at a map, or move there with the arrow keys.");
    const wide = `minmax(0, ${Math.max(84, Math.min(260, 620 / model.num_heads))}px)`;
    const grid = make("div", {class: "maps", role: "group", "aria-label": "Heads of all layers", style: `grid-template-columns: 1.6em repeat(${model.num_heads}, ${wide})`});
    grid.append(make("span", {}), ...Array.from({length: model.num_heads}, (_, head) => make("span", {}, head + 1)));
    for (let layer = 0; layer < model.num_layers; layer++) {
      grid.append(make("span", {}, layer + 1));
      for (let head = 0; head < model.num_heads; head++) {
        const rows = weights(model, layer, head);
        const says = `layer ${layer + 1}, head ${head + 1}: ${character(model, layer, head)}`, show = () => out.replaceChildren(says);
        grid.append(make("button", {
          type: "button", title: says, "aria-label": says, "data-key": `map ${page.models.indexOf(model)} ${layer} ${head}`,
          "aria-pressed": String(layer === state.layer && head === state.head), onmouseenter: show, onfocus: show,
          onclick: () => { set({view: "heads", layer, head, heads: new Set([head])}); document.querySelector('[data-key="heads"]').focus(); },
        }, cells(rows.flat(), model.tokens.length, Math.max(4 / model.tokens.length, largest(rows.map(largest))))));
      }
    }
    return [roving(grid, model.num_heads), out];
  }

  function neuronBody(model) {
    if (!model.query) return [motto(model.missing.vectors)];
    const [layer, head] = clamped(model), chosen = token(model), channels = model.query.shape[3];
    const query = part(model.query, layer, head, chosen), row = weights(model, layer, head)[chosen];
    const keys = Array.from({length: model.num_shown}, (_, at) => part(model.key, layer, head, at));
    const products = keys.map((key) => key.map((value, at) => value * query[at]));
    const [deepest, deepestProduct] = [largest([query, ...keys].map(largest)), largest(products.map(largest))];
    const strip = (values, depth, label) => make("div", {class: "strip"}, cells(values, channels, depth, label));
    const title = (...names) => make("div", {}, ...names.map(([name, wide]) => make("span", {class: `head ${wide ?? ""}`}, name)));
    const list = make("div", {class: "neuron"}), here = make("span", {class: "here"});
    const at = [];
    list.append(make("div", {}, make("span", {class: "token"}, "q of ", make("b", {}, model.tokens[chosen])),
      strip(query, deepest, `query of ${model.tokens[chosen]}`), here));
    list.append(title(["key of"], ["k", "wide"], ["q × k", "wide"], ["element"], ["Σ / √d"], ["softmax"], ["", "wide"]));
    keys.forEach((key, place) => {
      const name = model.tokens[place];
      at.push(make("span", {class: "number"}));
      list.append(make("div", {}, make("span", {class: "token"}, name), strip(key, deepest, `key of ${name}`), strip(products[place], deepestProduct, `query times key of ${name}`),
        at[place], make("span", {class: "number", title: "sum of the products, divided by the square root of d"}, signed(part(model.scores, layer, head, chosen)[place])),
        make("span", {class: "number"}, row[place].toFixed(3)), make("div", {class: "track"}, make("div", {class: "bar", style: `--p:${row[place]}`}))));
    });
    function draw() {
      const element = Math.min(state.element, channels - 1);
      list.style.setProperty("--at", element / channels);
      list.style.setProperty("--of", channels);
      here.replaceChildren(`element ${element} of 0 to ${channels - 1}: q is ${signed(query[element])}`);
      at.forEach((cell, place) => cell.replaceChildren(signed(products[place][element])));
    }
    list.addEventListener("mousemove", (event) => {
      const box = event.target.closest(".strip")?.getBoundingClientRect();
      if (!box) return;
      state.element = Math.floor(((event.clientX - box.left) / box.width) * channels);
      redraws.forEach((redraw) => redraw());
      document.querySelector('[data-key="element"]').value = state.element;
    });
    redraws.push(draw);
    return [tokens(model), list];
  }

  /** Rounds a row that sums to one so that what is shown sums to one as well: the largest remainders go up. */
  function rounded(row, digits) {
    const unit = 10 ** digits, whole = row.map((value) => Math.floor(value * unit)), missing = Math.round(unit - sum(whole));
    row.map((value, at) => [value * unit - whole[at], at]).sort((a, b) => b[0] - a[0]).slice(0, missing).forEach(([, at]) => { whole[at] += 1; });
    return whole.map((value) => value / unit);
  }
  function numbers(label, columns, rows, names, chosen, digits, isSummed) {
    const deepest = isSummed ? 1 : largest(rows.map(largest));
    const head = make("tr", {}, make("th", {}), ...columns.map((name) => make("th", {scope: "col"}, make("bdi", {}, name))), isSummed ? make("th", {class: "sum"}, "Σ") : null);
    const lines = rows.map((row, place) => make("tr", {class: place === chosen ? "chosen" : null}, make("th", {scope: "row"}, make("bdi", {}, names[place])),
      ...Array.from(row, (value) => make("td", {style: `background:${tint(value, deepest, 0.42)}`}, signed(value, digits))),
      isSummed ? make("td", {class: "sum"}, sum(row).toFixed(digits)) : null));
    return make("div", {class: "scroll numbers", tabindex: 0, role: "region", "aria-label": label}, make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)));
  }
  function tableBody(model) {
    const [layer, head] = clamped(model), rows = weights(model, layer, head), shown = model.tokens.slice(0, model.num_shown), chosen = token(model);
    const shape = (...sizes) => `[${sizes.join(" × ")}]`, softmaxes = rows.map((row) => rounded(row, 3));
    const parts = [tokens(model), make("h3", {}, `softmax(QKᵀ / √d) ${shape(shown.length, model.tokens.length)}`), numbers("attention", model.tokens, softmaxes, shown, chosen, 3, true)];
    if (!model.value) return [...parts, motto(model.missing.vectors)];
    const channels = model.value.shape[3], values = shown.map((_, at) => part(model.value, layer, head, at)), columns = Array.from({length: channels}, (_, at) => at);
    const output = rows.map((row) => columns.map((channel) => sum(row.map((weight, at) => weight * values[at][channel]))));
    parts.push(make("h3", {}, `× V ${shape(shown.length, channels)}`), numbers("values", columns, values, shown, null, 2, false),
      make("h3", {}, `= output of the head ${shape(shown.length, channels)}`), numbers("output", columns, output, shown, chosen, 2, false));
    return parts;
  }

  function near(model, layer, chosen) {
    const row = part(model.similarity, layer, chosen);
    return [...row.keys()].filter((at) => at !== chosen).sort((a, b) => row[b] - row[a]).slice(0, 3).map((at) => [at, row[at]]);
  }
  const after = (layer) => (layer ? `layer ${layer}` : "input");
  function layersBody(model) {
    const chosen = token(model), count = model.map.shape[0], width = 220, height = 150, widest = largest(model.map.values);
    const figures = Array.from({length: count}, (_, layer) => {
      const nearest = near(model, layer, chosen), place = (at) => { const [x, y] = part(model.map, layer, at); return [width * (0.5 + (0.45 * x) / widest), height * (0.5 - (0.45 * y) / widest)]; };
      const picture = make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${after(layer)}: nearest to ${model.tokens[chosen]} are ${nearest.map(([at]) => model.tokens[at]).join(", ")}`});
      const marked = [chosen, ...nearest.map(([at]) => at)], taken = [];
      const order = [...Array(model.num_shown).keys()].filter((at) => !marked.includes(at)).concat([...marked].reverse());
      for (const at of order) {
        const [x, y] = place(at), kind = at === chosen ? "chosen" : marked.includes(at) ? "near" : "";
        picture.append(make("circle", {cx: x, cy: y, r: kind ? 4 : 2.5, class: kind}, make("title", {}, model.tokens[at])));
      }
      for (const at of marked) {
        const [x, y] = place(at), wide = 6.2 * Math.min(model.tokens[at].length, 18), isLeft = x + wide + 6 > width;
        const name = model.tokens[at].length > 18 ? `${model.tokens[at].slice(0, 17)}…` : model.tokens[at];
        const free = [4, -8, 16, -20, 28, -32, 40].map((down) => Math.max(9, Math.min(height - 3, y + down))).find((top) =>
          !taken.some((other) => Math.abs(other.top - top) < 11 && other.left < (isLeft ? x - 6 : x + 6 + wide) && other.right > (isLeft ? x - 6 - wide : x + 6)));
        if (free === undefined) continue;
        taken.push({top: free, left: isLeft ? x - 6 - wide : x + 6, right: isLeft ? x - 6 : x + 6 + wide});
        picture.append(make("text", {x: isLeft ? x - 6 : x + 6, y: free, "text-anchor": isLeft ? "end" : "start"}, name));
      }
      return make("figure", {}, make("figcaption", {}, after(layer)), picture);
    });
    const rows = Array.from({length: count}, (_, layer) => make("tr", {}, make("th", {scope: "row"}, after(layer)), make("td", {}, ...near(model, layer, chosen).map(([at, cosine]) => value(model.tokens[at], cosine, signed(cosine))))));
    const parts = [tokens(model), make("h3", {}, "Its neighbours"), motto("Cosine of the vectors after each layer, less their mean in that layer."),
      make("table", {class: "guesses"}, make("tbody", {}, ...rows)), make("h3", {}, "On one map for all layers"),
      motto("The chosen token is orange, its three neighbours blue; two directions show a part of what differs, so look at the numbers above too."), make("div", {class: "places"}, ...figures), make("h3", {}, "What fills the place")];
    if (!model.lens) return [...parts, motto(model.missing.lens)];
    const {places, words, ids, probabilities, are_blanks: areBlanks} = model.lens;
    const at = places.includes(chosen) ? chosen : places[0], number = places.indexOf(at);
    const guesses = ids.map((layer, depth) => make("tr", {}, make("th", {scope: "row"}, after(depth)), make("td", {}, ...layer[number].map((id, best) =>
      value(words[id], probabilities[depth][number][best], percent(probabilities[depth][number][best]))))));
    return [...parts, motto(areBlanks ? "The model's head reads the vector of the blank after each layer (“logit lens”); it was trained to read the last one alone." :
      "The model's head reads the vector of the chosen token after each layer (“logit lens”). The token is no blank: the model sees it. Write ___ in the text to see a blank filled."),
    areBlanks ? tokens(model, places, at) : null, make("table", {class: "guesses"}, make("tbody", {}, ...guesses))].filter(Boolean);
  }

  function embeddingsBody(model) {
    if (!model.token) return [motto(model.missing.embeddings)];
    const chosen = token(model), size = model.token.shape[1], {embedding_rows: rows, embedding_shapes: shapes} = model;
    const vectors = {token: part(model.token, chosen), segment: model.segment && part(model.segment, rows.segment[chosen]), position: part(model.position, chosen)};
    const names = Object.keys(vectors).filter((name) => vectors[name]);
    const added = Float32Array.from({length: size}, (_, at) => sum(names.map((name) => vectors[name][at])));
    const mean = sum(added) / size, deviation = Math.sqrt(sum(added.map((value) => (value - mean) ** 2)) / size + model.norm_epsilon);
    const [scale, shift] = [part(model.norm, 0), part(model.norm, 1)], input = added.map((value, at) => ((value - mean) / deviation) * scale[at] + shift[at]);
    const list = make("div", {class: "added"}), columns = size <= 128 ? size : Math.ceil(size / Math.ceil(size / 96));
    const line = (name, note, values, depth) => list.append(make("div", {}, make("b", {}, name), make("small", {}, note)), make("div", {},
      make("div", {class: "strip"}, cells(values, columns, depth, name)), make("small", {}, `${Array.from(values.slice(0, 4), (value) => signed(value)).join(", ")}, …   length ${Math.sqrt(sum(Array.from(values, (one) => one * one))).toFixed(2)}`)));
    const deepest = largest([...names.map((name) => largest(vectors[name])), largest(added)]);
    names.forEach((name, place) => line(`${place ? "+ " : ""}${name}`, `row ${rows[name][chosen]} of [${shapes[name]}]`, vectors[name], deepest));
    line("= sum", `[${size}]`, added, deepest);
    line("LayerNorm", `[${size}], a row of the input [${model.num_shown} × ${size}]`, input, largest(input));
    return [tokens(model), list, names.length < 3 ? motto("This model has no segment embeddings.") : null].filter(Boolean);
  }

  function render() {
    const key = document.activeElement?.dataset?.key, view = views[state.view], panel = document.getElementById("view"), tabs = document.getElementById("tabs");
    redraws = [];
    tabs.replaceChildren(...Object.keys(views).map((name) => make("button", {type: "button", role: "tab", id: `tab-${name}`, "data-key": name, "aria-controls": "view", "aria-selected": String(name === state.view), onclick: () => set({view: name})}, name)));
    roving(tabs);
    panel.setAttribute("aria-labelledby", `tab-${state.view}`);
    panel.replaceChildren(motto(view.what), make("div", {class: "controls"}, ...view.controls().filter(Boolean)),
      make("div", {class: "models"}, ...page.models.map((model) => make("article", {}, page.models.length > 1 ? make("h2", {}, model.name) : null, ...view.body(model)))));
    redraws.forEach((redraw) => redraw());
    if (key) [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus({preventScroll: true});
  }

  const texts = [...document.querySelectorAll("script.numbers")].map((one) => one.textContent.trim());
  await Promise.all(page.models.map((model, place) => unpack(model, texts[place])));
  state.heads = new Set(Array.from({length: most("num_heads")}, (_, head) => head));
  render();
  addEventListener("resize", () => redraws.forEach((redraw) => redraw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
})();
