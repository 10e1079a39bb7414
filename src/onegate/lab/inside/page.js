"use strict";
// Draws what #data holds: values are bytes in base64, (units, steps) row by row for each example.
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
  const runs = data.runs.map((run, number) => ({ ...run, box: find(`run-${number}`), maps: [] }));

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
      rule: color("--rule"), high: color("--series-0"), low: color("--series-1"),
    };
    const mix = (from, to, share) => from.map((v, i) => Math.round(v + share * (to[i] - v)));
    const packed = ([r, g, b]) => new Uint32Array(Uint8Array.of(r, g, b, 255).buffer)[0];
    const levels = [...Array(256).keys()];
    gateColors = levels.map(level => packed(mix(palette.paper, palette.high, level / 255)));
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

  // Units from the longest memory to the shortest, or as they are numbered.
  function order(pass, units) {
    const ranks = [...Array(units).keys()];
    const spans = pass[state.sort === "measured" ? "measured" : "span"] || pass.measured;
    if (state.sort === "number" || spans.length !== units) return ranks;
    const length = unit => spans[unit] === null ? -1 : spans[unit] < 0 ? Infinity : spans[unit];
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
        const high = short(value.high);
        make("small", "", name).append(value.gate ? `0 \u2026 ${high}` : `\u00b1 ${high}`);
        const heat = make("div", "heat", row), canvas = make("canvas", "over-time", heat);
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${run.label}: ${value.name} over time, a line a unit`);
        const cursor = make("i", "cursor", heat), line = make("i", "line", heat);
        const now = make("canvas", "now", row);
        now.setAttribute("aria-hidden", "true");
        const map = { value, canvas, cursor, line, now, ranks: order(pass, value.units) };
        heat.addEventListener("pointerdown", event => {
          const area = canvas.getBoundingClientRect();
          const at = (position, length, count) =>
            clamp(Math.floor(position / length * count), 0, count - 1);
          slider.focus({ preventScroll: true });
          state.rank = at(event.clientY - area.top, area.height, value.units);
          moveTo(at(event.clientX - area.left, area.width, example().steps));
        });
        return map;
      });
    }
    drawMaps();
  }

  function drawMaps() {
    const length = example().steps;
    for (const run of runs)
      for (const { value, canvas, ranks } of run.maps) {
        const colors = value.gate ? gateColors : signedColors;
        const levels = bytes(value.data[state.weights][state.example]);
        canvas.width = length;
        canvas.height = value.units;
        canvas.classList.toggle("coarse", length < 200);
        const context = canvas.getContext("2d"), image = context.createImageData(length, value.units);
        const dots = new Uint32Array(image.data.buffer);
        ranks.forEach((unit, rank) => {
          for (let t = 0; t < length; t++)
            dots[rank * length + t] = colors[levels[unit * length + t]];
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
        now.height = 4 * value.units;
        const context = now.getContext("2d");
        ranks.forEach((unit, rank) => {
          const end = levels[unit * length + t] / 255 * 64, zero = value.gate ? 0 : 32;
          context.fillStyle = css(end < zero ? palette.low : palette.high);
          context.fillRect(Math.min(zero, end), 4 * rank, Math.max(1, Math.abs(end - zero)), 4);
        });
        cursor.style.left = `${(t + 0.5) / length * 100}%`;
        line.style.top = `${(Math.min(state.rank, value.units - 1) + 0.5) / value.units * 100}%`;
      }
      run.box.querySelector(".unit").textContent = unitText(run, pass);
    }
    drawInput();
    slider.value = t + 1;
    slider.setAttribute("aria-valuetext", `step ${t + 1} of ${length}`);
    find("clock").textContent = `step ${t + 1} of ${length}`;
  }

  function unitText(run, pass) {
    const { t } = state, length = example().steps;
    const memory = run.maps.find(map => map.value.name === pass.memory) || run.maps.at(-1);
    const unit = memory.ranks[Math.min(state.rank, memory.ranks.length - 1)];
    const at = (map, step) =>
      written(number(map.value, bytes(map.value.data[state.weights][state.example])[unit * length + step]));
    const parts = [`unit ${unit} of ${memory.value.units}`];
    const spans = [];
    if (pass.span) spans.push(`${steps(pass.span[unit])} by its gate`);
    spans.push(`${steps(pass.measured[unit])} measured`);
    parts.push(`memory ${spans.join(", ")}`);
    const before = t + (pass.backward ? 1 : -1), values = [];
    if (before >= 0 && before < length)
      values.push(`${pass.memory} before = ${at(memory, before)}`);
    for (const map of run.maps)
      if (unit < map.value.units) values.push(`${map.value.name} = ${at(map, t)}`);
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
      if (step[pixel] === t) color = palette.low.map((v, i) => 0.65 * v + 0.35 * color[i]);
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
      context.fillStyle = css(marked ? palette.low : step === t ? palette.ink : palette.muted);
      context.fillRect(step * wide + wide * 0.1, zero * canvas.height - Math.max(high, 0),
                       Math.max(wide * 0.8, 1), Math.max(Math.abs(high), 1));
      if (step === t) {
        context.fillStyle = css(palette.high);
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
      const units = Math.max(...runs.flatMap(run => run.maps.map(map => map.value.units)));
      state.rank = clamp(state.rank + (key === "ArrowDown" ? far : -far), 0, units - 1);
      drawNow();
    } else return;
    event.preventDefault();
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
  choose();
})();
