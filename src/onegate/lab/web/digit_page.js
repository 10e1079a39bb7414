"use strict";
// A drawing becomes 28 rows of 28 pixels; the net reads them, and what it computes at each row is
// kept, so that the slider can go back and forth.
(() => {
  const SIDE = 28, BOX = 20;
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const [scale, shift] = data.scaling;
  const bytes = Uint8Array.from(atob(data.wasm), (c) => c.charCodeAt(0));
  const net = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
  const view = (place, size) => new Float32Array(net.memory.buffer, place, size);
  const drawing = find("drawing"), pen = drawing.getContext("2d", { willReadFrequently: true });
  const seen = find("seen"), time = find("time");
  let rows = [], timer = 0;

  // Each row's scores, and the values of every map.
  function read(pixels) {
    const steps = [];
    net.reset();
    for (let t = 0; t < SIDE; t++) {
      const x = view(net.input(), SIDE);
      for (let i = 0; i < SIDE; i++) x[i] = pixels[t * SIDE + i] * scale + shift;
      net.step();
      steps.push({
        scores: view(net.output(), data.classes).slice(),
        maps: data.shown.map((each, k) => view(net.seen(k), each.size).slice()),
      });
    }
    return steps;
  }

  // As the digits of MNIST were made: fitted into 20 x 20, the centre of mass in the middle.
  function fitted() {
    const { data: all } = pen.getImageData(0, 0, drawing.width, drawing.height);
    let left = drawing.width, right = -1, top = drawing.height, bottom = -1, mass = 0, mx = 0, my = 0;
    for (let y = 0; y < drawing.height; y++)
      for (let x = 0; x < drawing.width; x++) {
        const v = all[4 * (y * drawing.width + x)];
        if (!v) continue;
        left = Math.min(left, x); right = Math.max(right, x);
        top = Math.min(top, y); bottom = Math.max(bottom, y);
        mass += v; mx += v * x; my += v * y;
      }
    if (!mass) return null;
    const ratio = BOX / Math.max(right - left + 1, bottom - top + 1);
    const small = document.createElement("canvas");
    small.width = small.height = SIDE;
    const context = small.getContext("2d", { willReadFrequently: true });
    context.imageSmoothingQuality = "high";
    context.setTransform(ratio, 0, 0, ratio, SIDE / 2 - (mx / mass + 0.5) * ratio, SIDE / 2 - (my / mass + 0.5) * ratio);
    context.drawImage(drawing, 0, 0);
    const grey = context.getImageData(0, 0, SIDE, SIDE).data;
    return Array.from({ length: SIDE * SIDE }, (_, i) => grey[4 * i]);
  }

  function paint(canvas, pixels) {
    const context = canvas.getContext("2d"), image = context.createImageData(SIDE, SIDE);
    pixels.forEach((v, i) => image.data.set([v, v, v, 255], 4 * i));
    context.putImageData(image, 0, 0);
  }

  function show(pixels) {
    rows = pixels ? read(pixels) : [];
    seen.pixels = pixels;
    paint(seen, pixels || new Array(SIDE * SIDE).fill(0));
    time.value = SIDE;
    update();
  }

  const scores = Array.from({ length: data.classes }, (_, k) => {
    const line = document.createElement("div"), name = document.createElement("span");
    const bar = document.createElement("div"), fill = document.createElement("span");
    const value = document.createElement("output");
    line.className = "score";
    name.textContent = k;
    bar.append(fill);
    line.append(name, bar, value);
    find("scores").append(line);
    return { fill, value };
  });
  const maps = data.shown.map((each) => {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    canvas.width = each.size;
    canvas.height = SIDE;
    canvas.setAttribute("aria-label", `${each.label}, a line for each row read`);
    caption.textContent = each.label;
    figure.append(canvas, caption);
    find("maps").append(figure);
    return canvas;
  });

  // States lie within -1 and 1, gates within 0 and 1: blue above 0, orange below.
  function colour(v) {
    const strength = Math.min(1, Math.abs(v)), end = v < 0 ? [230, 120, 30] : [40, 130, 240];
    return [...end.map((c) => Math.round(12 + strength * (c - 12))), 255];
  }

  function update() {
    const upto = rows.length ? Number(time.value) : 0;
    find("row").textContent = upto;
    const last = rows[upto - 1];
    const best = last ? last.scores.indexOf(Math.max(...last.scores)) : -1;
    find("answer").textContent = last ? best : "";
    scores.forEach(({ fill, value }, k) => {
      const share = last ? last.scores[k] : 0;
      fill.style.width = `${100 * share}%`;
      value.textContent = last ? `${(100 * share).toFixed(1)} %` : "";
    });
    maps.forEach((canvas, k) => {
      const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, SIDE);
      rows.slice(0, upto).forEach((row, t) =>
        row.maps[k].forEach((v, i) => image.data.set(colour(v), 4 * (t * canvas.width + i))));
      context.putImageData(image, 0, 0);
    });
    const context = seen.getContext("2d");
    paint(seen, seen.pixels || new Array(SIDE * SIDE).fill(0));
    if (upto && upto < SIDE) {
      context.fillStyle = "rgba(108, 176, 255, 0.45)";
      context.fillRect(0, upto - 1, SIDE, 1);
    }
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
  }

  function clear() {
    stop();
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, drawing.width, drawing.height);
    show(null);
  }

  const place = (event) => {
    const box = drawing.getBoundingClientRect();
    return [(event.clientX - box.left) * drawing.width / box.width, (event.clientY - box.top) * drawing.height / box.height];
  };
  let before = null;
  drawing.addEventListener("pointerdown", (event) => {
    stop();
    before = place(event);
    drawing.setPointerCapture(event.pointerId);
    stroke(event);
  });
  drawing.addEventListener("pointermove", (event) => before && stroke(event));
  for (const end of ["pointerup", "pointercancel"])
    drawing.addEventListener(end, () => { before = null; });
  function stroke(event) {
    const now = place(event);
    pen.strokeStyle = "#fff";
    pen.lineWidth = 22;
    pen.lineCap = pen.lineJoin = "round";
    pen.beginPath();
    pen.moveTo(...before);
    pen.lineTo(...now);
    pen.stroke();
    before = now;
    show(fitted());
  }

  for (const { label, pixels } of data.examples) {
    const button = document.createElement("button"), small = document.createElement("canvas");
    small.width = small.height = SIDE;
    paint(small, pixels);
    button.type = "button";
    button.setAttribute("aria-label", `Test image of a ${label}`);
    button.append(small);
    button.addEventListener("click", () => { clear(); show(pixels); });
    find("examples").append(button);
  }
  find("clear").addEventListener("click", clear);
  time.addEventListener("input", () => { stop(); update(); });
  find("play").addEventListener("click", () => {
    stop();
    if (!rows.length) return;
    time.value = 0;
    timer = setInterval(() => {
      time.value = Number(time.value) + 1;
      update();
      if (Number(time.value) >= SIDE) stop();
    }, 120);
  });
  // Something to look at before anything is drawn.
  clear();
  const first = data.examples.find(({ label }) => label === 3) || data.examples[0];
  if (first) show(first.pixels);
})();
