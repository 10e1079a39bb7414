"use strict";
// Draws what #data holds: values are bytes in base64, (neurons, steps) row by row for each example.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = id => document.getElementById(id);
  const make = (name, className, parent) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (parent) parent.append(element);
    return element;
  };
  const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
  const state = { example: 0, weights: 0, pass: 0, sort: "span", t: 0, rank: 0 };
  const slider = find("time");
  const runs = data.runs.map((run, number) => ({ ...run, box: find(`run-${number}`), picture: `unit-${number}`, maps: [] }));

  // Colours are the page's own, so that light and dark fit.
  let gateColors, signedColors, palette;
  function readColors() {
    const style = getComputedStyle(document.documentElement);
    const color = name => {
      const hex = style.getPropertyValue(name).trim().slice(1);
      return [0, 2, 4].map(at => parseInt(hex.slice(at, at + 2), 16));
    };
    palette = {
      paper: color("--paper"), ink: color("--ink"), muted: color("--muted"),
      rule: color("--rule"), gate: color("--series-0"), high: color("--series-6"),
      low: color("--series-5"), input: color("--series-2"),
    };
    const mix = (from, to, share) => from.map((v, i) => Math.round(v + share * (to[i] - v)));
    const packed = ([r, g, b]) => new Uint32Array(Uint8Array.of(r, g, b, 255).buffer)[0];
    const levels = [...Array(256).keys()];
    gateColors = levels.map(level => packed(mix(palette.paper, palette.gate, level / 255)));
    signedColors = levels.map(level => {
      const signed = level / 127.5 - 1;
      return packed(mix(palette.paper, signed < 0 ? palette.low : palette.high, Math.abs(signed)));
    });
  }
  const css = rgb => `rgb(${rgb.join(" ")})`;

  const cache = new Map();
  function bytes(text) {
    if (!cache.has(text)) {
      const decoded = Uint8Array.from(atob(text), c => c.charCodeAt(0));
      if (cache.size > 64) cache.clear();
      cache.set(text, decoded);
    }
    return cache.get(text);
  }
  const example = () => data.examples[state.example];
  const passOf = run => run.passes[Math.min(state.pass, run.passes.length - 1)];
  const number = (value, level) => value.low + level / 255 * (value.high - value.low);
  const written = v => {
    const small = Math.abs(v) < 0.0995;
    const text = small ? String(Number(v.toPrecision(2))) : v.toFixed(Math.abs(v) < 9.995 ? 2 : 1);
    return text.replace("-", "\u2212");
  };
  const short = v => String(Number(v.toPrecision(2)));
  const steps = span => span === null ? "unknown" : span < 0 ? "without end" : `${span} steps`;

  // Neurons from the longest memory to the shortest, or as they are numbered.
  function order(pass, neurons) {
    const ranks = [...Array(neurons).keys()];
    const spans = pass[state.sort === "measured" ? "measured" : "span"] || pass.measured;
    if (state.sort === "number" || spans.length !== neurons) return ranks;
    const length = neuron => spans[neuron] === null ? -1 : spans[neuron] < 0 ? Infinity : spans[neuron];
    return ranks.sort((a, b) => length(b) - length(a) || a - b);
  }

  function buildMaps() {
    for (const run of runs) {
      const pass = passOf(run), box = run.box.querySelector(".maps");
      box.replaceChildren();
      run.maps = pass.values.map(value => {
        const row = make("div", "map", box);
        const name = make("span", "name", row);
        name.append(value.name);
        const ends = [value.low, value.high].map(v => short(v).replace("-", "\u2212"));
        make("i", value.gate ? "scale gate" : "scale signed", name);
        const numbers = make("small", "ends", name);
        for (const end of ends) make("span", "", numbers).append(end);
        const neurons = make("div", "y-axis", row);
        for (const text of [1, "neurons", value.neurons]) make("span", "", neurons).append(text);
        const heat = make("div", "heat", row), canvas = make("canvas", "over-time", heat);
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${run.label}: ${value.name} over time, a line a neuron`);
        const cursor = make("i", "cursor", heat), line = make("i", "line", heat);
        const now = make("canvas", "now", row);
        now.setAttribute("aria-hidden", "true");
        const times = make("div", "x-axis", row), range = make("small", "ends range", row);
        for (const end of ends) make("span", "", range).append(end);
        const map = { value, canvas, cursor, line, now, times, ranks: order(pass, value.neurons) };
        heat.addEventListener("pointerdown", event => {
          const area = canvas.getBoundingClientRect();
          const at = (position, length, count) =>
            clamp(Math.floor(position / length * count), 0, count - 1);
          slider.focus({ preventScroll: true });
          state.rank = at(event.clientY - area.top, area.height, value.neurons);
          moveTo(at(event.clientX - area.left, area.width, example().steps));
        });
        return map;
      });
    }
    drawMaps();
  }

  // Step 1, and as many round steps as have room; the last map says what they are.
  function drawTimes(times, length, titled) {
    times.replaceChildren();
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(n => length / n <= 6) || 5000;
    for (let t = 1; t <= length; t += t === 1 && every > 1 ? every - 1 : every) {
      const tick = make("span", "", times);
      tick.append(t);
      tick.style.left = `${(t - 0.5) / length * 100}%`;
    }
    if (titled) make("b", "", times).append("step");
  }

  function drawMaps() {
    const length = example().steps;
    for (const run of runs)
      for (const { value, canvas, times, ranks } of run.maps) {
        drawTimes(times, length, value === run.maps.at(-1).value);
        const colors = value.gate ? gateColors : signedColors;
        const levels = bytes(value.data[state.weights][state.example]);
        canvas.width = length;
        canvas.height = value.neurons;
        canvas.classList.toggle("coarse", length < 200);
        const context = canvas.getContext("2d"), image = context.createImageData(length, value.neurons);
        const dots = new Uint32Array(image.data.buffer);
        ranks.forEach((neuron, rank) => {
          for (let t = 0; t < length; t++)
            dots[rank * length + t] = colors[levels[neuron * length + t]];
        });
        context.putImageData(image, 0, 0);
      }
    drawNow();
  }

  function drawNow() {
    const { t } = state, length = example().steps;
    for (const run of runs) {
      const pass = passOf(run);
      for (const { value, cursor, line, now, ranks } of run.maps) {
        const levels = bytes(value.data[state.weights][state.example]);
        now.width = 64;
        now.height = 4 * value.neurons;
        const context = now.getContext("2d");
        ranks.forEach((neuron, rank) => {
          const end = levels[neuron * length + t] / 255 * 64, zero = value.gate ? 0 : 32;
          context.fillStyle = css(value.gate ? palette.gate : end < zero ? palette.low : palette.high);
          context.fillRect(Math.min(zero, end), 4 * rank, Math.max(1, Math.abs(end - zero)), 4);
        });
        cursor.style.left = `${(t + 0.5) / length * 100}%`;
        line.style.top = `${(Math.min(state.rank, value.neurons - 1) + 0.5) / value.neurons * 100}%`;
      }
      run.box.querySelector(".neuron").textContent = neuronText(run, pass);
      writeOnPicture(run, pass);
    }
    drawInput();
    slider.value = t + 1;
    slider.setAttribute("aria-valuetext", `step ${t + 1} of ${length}`);
    find("clock").textContent = `step ${t + 1} of ${length}`;
  }

  // The map of the memory, and the chosen neuron in it.
  function chosen(run, pass) {
    const memory = run.maps.find(map => map.value.name === pass.memory) || run.maps.at(-1);
    return [memory, memory.ranks[Math.min(state.rank, memory.ranks.length - 1)]];
  }

  // The values of the chosen neuron, each beside its name in the unit's picture.
  function writeOnPicture(run, pass) {
    const { t } = state, length = example().steps, [, neuron] = chosen(run, pass);
    for (const { value } of run.maps) {
      const name = run.box.querySelector(`[id="${run.picture}-value-${CSS.escape(value.name)}"]`);
      if (!name || neuron >= value.neurons) continue;
      let text = run.box.querySelector(`text[data-value="${CSS.escape(value.name)}"]`);
      if (!text) {
        const box = name.getBBox();
        text = document.createElementNS("http://www.w3.org/2000/svg", "text");
        text.dataset.value = value.name;
        text.setAttribute("class", "written");
        text.setAttribute("x", box.x + box.width / 2);
        text.setAttribute("y", box.y - 3);
        name.ownerSVGElement.append(text);
      }
      const levels = bytes(value.data[state.weights][state.example]);
      text.textContent = written(number(value, levels[neuron * length + t]));
    }
  }

  function neuronText(run, pass) {
    const { t } = state, length = example().steps;
    const [memory, neuron] = chosen(run, pass);
    const at = (map, step) =>
      written(number(map.value, bytes(map.value.data[state.weights][state.example])[neuron * length + step]));
    const parts = [`neuron ${neuron} of ${memory.value.neurons}`];
    const spans = [];
    if (pass.span) spans.push(`${steps(pass.span[neuron])} by its gate`);
    spans.push(`${steps(pass.measured[neuron])} measured`);
    parts.push(`memory ${spans.join(", ")}`);
    const before = t + (pass.backward ? 1 : -1), values = [];
    if (before >= 0 && before < length)
      values.push(`${pass.memory} before = ${at(memory, before)}`);
    for (const map of run.maps)
      if (neuron < map.value.neurons) values.push(`${map.value.name} = ${at(map, t)}`);
    parts.push(values.join(", "));
    return parts.join(" \u00b7 ");
  }

  // The input: an image with the pixels being read, numbers as bars, or words.
  function drawInput() {
    const shown = example(), { t } = state;
    if (shown.kind === "image") drawImage(shown, t);
    if (shown.kind === "numbers") drawNumbers(shown, t);
    if (shown.kind === "words") drawWords(t);
  }

  function drawImage(shown, t) {
    const context = find("picture").getContext("2d"), image = context.createImageData(28, 28);
    const levels = bytes(shown.image), step = Array(784);
    shown.pixels.forEach((pixels, when) => pixels.forEach(pixel => { step[pixel] = when }));
    const backward = passOf(runs[0]).backward;
    for (let pixel = 0; pixel < 784; pixel++) {
      const unread = backward ? step[pixel] < t : step[pixel] > t;
      const share = levels[pixel] / 255 * (unread ? 0.4 : 1);
      let color = palette.paper.map((v, i) => v + share * (palette.ink[i] - v));
      if (step[pixel] === t) color = palette.input.map((v, i) => 0.65 * v + 0.35 * color[i]);
      image.data.set([...color.map(Math.round), 255], 4 * pixel);
    }
    context.putImageData(image, 0, 0);
    const read = shown.pixels[t].map(pixel => levels[pixel] / 255);
    const mean = read.reduce((a, b) => a + b, 0) / read.length;
    find("x").textContent = read.length > 1
      ? `x: row ${t + 1}, ${Math.round(100 * mean)}% ink`
      : `x: pixel ${shown.pixels[t][0] + 1}, ${Math.round(100 * mean)}% ink`;
  }

  function drawNumbers(shown, t) {
    const canvas = find("bars"), scale = devicePixelRatio || 1;
    canvas.width = Math.max(1, canvas.clientWidth * scale);
    canvas.height = Math.max(1, canvas.clientHeight * scale);
    const context = canvas.getContext("2d");
    const most = Math.max(1e-9, ...shown.numbers.map(Math.abs));
    const zero = shown.numbers.some(v => v < 0) ? 0.5 : 1;
    const wide = canvas.width / shown.steps;
    shown.numbers.forEach((v, step) => {
      const high = v / most * zero * canvas.height * 0.98;
      const marked = shown.marked.includes(step);
      context.globalAlpha = step === t ? 1 : marked ? 0.9 : 0.45;
      context.fillStyle = css(marked ? palette.input : palette.muted);
      context.fillRect(step * wide + wide * 0.1, zero * canvas.height - Math.max(high, 0),
                       Math.max(wide * 0.8, 1), Math.max(Math.abs(high), 1));
      if (step === t) {
        context.fillStyle = css(palette.ink);
        context.fillRect(step * wide, canvas.height - 3 * scale, wide, 3 * scale);
      }
    });
    const marked = shown.marked.includes(t) ? " (marked)" : "";
    find("x").textContent = `x: ${written(shown.numbers[t])}${marked}`;
  }

  function drawWords(t) {
    const box = find("words"), word = box.children[t];
    box.querySelector(".now")?.classList.remove("now");
    word.classList.add("now");
    box.scrollTop = word.offsetTop - box.clientHeight / 2;
    find("x").textContent = `x: ${word.textContent.trim()}`;
  }

  function buildInput() {
    const shown = example(), box = find("words");
    if (box) {
      box.replaceChildren(...shown.words.map((word, step) => {
        const element = make("span");
        element.textContent = `${word} `;
        element.addEventListener("click", () => moveTo(step));
        return element;
      }));
    }
    find("answer").textContent = shown.answer;
    runs.forEach((run, place) => {
      run.box.querySelector(".answer").textContent = shown.answers[state.weights][place];
    });
  }

  function moveTo(t) {
    state.t = clamp(t, 0, example().steps - 1);
    drawNow();
  }

  function choose() {
    state.example = find("example").selectedIndex;
    state.weights = find("weights").selectedIndex;
    state.pass = find("pass").selectedIndex;
    state.sort = find("sort").value;
    slider.max = example().steps;
    state.t = clamp(state.t, 0, example().steps - 1);
    buildInput();
    buildMaps();
  }

  function press(event) {
    const { key } = event, length = example().steps;
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("select")) return;
    const far = event.shiftKey ? 10 : 1;
    if (key === "ArrowRight") moveTo(state.t + far);
    else if (key === "ArrowLeft") moveTo(state.t - far);
    else if (key === "Home") moveTo(0);
    else if (key === "End") moveTo(length - 1);
    else if (key === "ArrowDown" || key === "ArrowUp") {
      const neurons = Math.max(...runs.flatMap(run => run.maps.map(map => map.value.neurons)));
      state.rank = clamp(state.rank + (key === "ArrowDown" ? far : -far), 0, neurons - 1);
      drawNow();
    } else return;
    event.preventDefault();
  }

  // Opens where the memory changes most, at the neuron that changes most there.
  function open() {
    state.t = example().start;
    choose();
    const run = runs[0], [memory] = chosen(run, passOf(run)), length = example().steps;
    const levels = bytes(memory.value.data[0][0]), before = state.t + (passOf(run).backward ? 1 : -1);
    if (before < 0 || before >= length) return;
    const change = memory.ranks.map(n => Math.abs(levels[n * length + state.t] - levels[n * length + before]));
    state.rank = change.indexOf(Math.max(...change));
    drawNow();
  }

  readColors();
  for (const id of ["example", "weights", "pass", "sort"]) find(id).addEventListener("change", choose);
  slider.addEventListener("input", () => moveTo(Number(slider.value) - 1));
  find("explore").addEventListener("keydown", press);
  document.addEventListener("keydown", event => {  // the other keys scroll the page
    if (event.target === document.body && /Arrow(Left|Right)/.test(event.key)) press(event);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColors();
    drawMaps();
  });
  addEventListener("resize", drawInput);
  open();
})();
