/* mask.js - the mask editor: pointer, touch and keyboard paint over the image
 *
 * The canvas has a single colour; its alpha channel is the mask. */
import { byId, iconButton } from './dom.js';
import { greyPng } from './png.js';

const mostMask = 2048;          /* pixels of a side of the mask                                */
const mostHistory = 40;
const canvas = byId('mask');
const pen = canvas.getContext('2d', { willReadFrequently: true });
const dialog = byId('mask-dialog');
const stage = byId('mask-stage');
const ring = byId('mask-ring');

let brush = { x: 0, y: 0 };     /* in pixels of the canvas                                     */
let view = { x: 0, y: 0, scale: 1 };
let history = [];               /* alphas; [at] is what is shown                               */
let at = 0;
const pointers = new Map();     /* those that are down: id -> event                            */
let painting = false;

/* ---- the canvas as an alpha -------------------------------------------------------------- */

function readAlpha() {
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const alpha = new Uint8Array(data.length / 4);
  for (let i = 0; i < alpha.length; i++)
    alpha[i] = data[4 * i + 3] >= 128 ? 255 : 0;
  return alpha;
}

function writeAlpha(alpha) {
  const pixels = pen.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < alpha.length; i++)
    pixels.data.set([214, 32, 106, alpha[i]], 4 * i);
  pen.putImageData(pixels, 0, 0);
}

function showHistory() {
  byId('undo').disabled = at === 0;
  byId('redo').disabled = at === history.length - 1;
}

/* Adds the stroke to the undo history. */
function note() {
  history = [...history.slice(0, at + 1), readAlpha()].slice(-mostHistory);
  at = history.length - 1;
  showHistory();
}

function step(by) {
  at = Math.min(history.length - 1, Math.max(0, at + by));
  writeAlpha(history[at]);
  showHistory();
}

function change(alphaOf) {
  writeAlpha(readAlpha().map(alphaOf));
  note();
}

/* ---- painting ---------------------------------------------------------------------------- */

/* The slider is a percentage of the shorter side. */
function brushWidth() {
  return Math.max(1, byId('brush').value / 100 * Math.min(canvas.width, canvas.height));
}

const erases = () => byId('erase').ariaPressed === 'true';

function drawTo(x, y) {
  pen.globalCompositeOperation = erases() ? 'destination-out' : 'source-over';
  pen.strokeStyle = 'rgb(214 32 106)';
  pen.lineWidth = brushWidth();
  pen.lineCap = pen.lineJoin = 'round';
  pen.beginPath();
  pen.moveTo(brush.x, brush.y);
  pen.lineTo(x, y + 0.01);      /* a line without length would leave no dot                    */
  pen.stroke();
  brush = { x, y };
}

function showRing() {
  const width = 100 * brushWidth() / canvas.width;
  ring.style.left = `${100 * brush.x / canvas.width}%`;
  ring.style.top = `${100 * brush.y / canvas.height}%`;
  ring.style.width = `${width}%`;
}

function placeOf(event) {
  const box = canvas.getBoundingClientRect();
  return { x: (event.clientX - box.left) / box.width * canvas.width,
           y: (event.clientY - box.top) / box.height * canvas.height };
}

/* ---- zoom -------------------------------------------------------------------------------- */

function showView() {
  stage.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.scale})`;
}

/* Zooms around a point of the window, and moves it by dx and dy. */
function zoom(factor, clientX, clientY, dx = 0, dy = 0) {
  const area = byId('mask-area').getBoundingClientRect();
  const scale = Math.min(16, Math.max(1, view.scale * factor));
  const [x, y] = [clientX - area.left - area.width / 2, clientY - area.top - area.height / 2];
  view = scale === 1 && factor <= 1 && !dx && !dy ? { x: 0, y: 0, scale } : {
    x: x - (x - view.x) * scale / view.scale + dx,
    y: y - (y - view.y) * scale / view.scale + dy, scale };
  showView();
}

function zoomBy(factor) {
  const area = byId('mask-area').getBoundingClientRect();
  zoom(factor, area.left + area.width / 2, area.top + area.height / 2);
}

/* Returns the distance and the midpoint of two fingers. */
function pinch() {
  const [a, b] = [...pointers.values()];
  return { apart: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) || 1,
           x: (a.clientX + b.clientX) / 2, y: (a.clientY + b.clientY) / 2 };
}

/* ---- pointer and keyboard ---------------------------------------------------------------- */

/* A second finger cancels the stroke of the first one and moves the view. */
function onDown(event) {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, event);
  if (pointers.size > 1 && painting) {
    painting = false;
    writeAlpha(history[at]);
  }
  if (pointers.size > 1 || event.button === 1)
    return;
  painting = true;
  brush = placeOf(event);
  drawTo(brush.x, brush.y);
  showRing();
}

function onMove(event) {
  const before = pointers.size === 2 && pointers.has(event.pointerId) ? pinch() : null;
  const last = pointers.get(event.pointerId);
  if (last)
    pointers.set(event.pointerId, event);
  if (before) {
    const now = pinch();
    zoom(now.apart / before.apart, now.x, now.y, now.x - before.x, now.y - before.y);
  } else if (painting) {
    for (const e of event.getCoalescedEvents?.() || [])
      drawTo(placeOf(e).x, placeOf(e).y);
    drawTo(placeOf(event).x, placeOf(event).y);
  } else if (last && pointers.size === 1 && event.buttons & 4) {
    zoom(1, event.clientX, event.clientY, event.clientX - last.clientX,
         event.clientY - last.clientY);
  } else {
    brush = placeOf(event);
  }
  showRing();
}

function onUp(event) {
  pointers.delete(event.pointerId);
  if (painting)
    note();
  painting = false;
}

const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function moveBrush([dx, dy]) {
  const by = Math.max(1, brushWidth() / 2);
  brush = { x: Math.min(canvas.width, Math.max(0, brush.x + dx * by)),
            y: Math.min(canvas.height, Math.max(0, brush.y + dy * by)) };
}

function resizeBrush(by) {
  byId('brush').value = Number(byId('brush').value) + by;
}

const keys = {
  '[': () => resizeBrush(-3), ']': () => resizeBrush(3), '+': () => zoomBy(1.25),
  '-': () => zoomBy(0.8), '0': () => zoomBy(0), 'e': () => byId('erase').click(),
  ' ': () => {
    drawTo(brush.x, brush.y);
    note();
  },
};

function onKey(event) {
  const command = event.ctrlKey || event.metaKey;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (command && (key === 'z' || key === 'y'))
    step(key === 'y' || event.shiftKey ? 1 : -1);
  else if (event.target === canvas && arrows[key])
    moveBrush(arrows[key]);
  else if (!command && keys[key] && (event.target === canvas || key !== ' '))
    keys[key]();
  else
    return;
  event.preventDefault();
  showRing();
}

/* ---- the editor -------------------------------------------------------------------------- */

/* Reads a mask from the bright parts of a file. */
async function readMask(file) {
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.globalCompositeOperation = 'source-over';
  pen.drawImage(await createImageBitmap(file), 0, 0, canvas.width, canvas.height);
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const alpha = new Uint8Array(data.length / 4);
  for (let i = 0; i < alpha.length; i++) {
    const [r, g, b, a] = data.subarray(4 * i, 4 * i + 4);
    alpha[i] = (0.299 * r + 0.587 * g + 0.114 * b) * a / 255 >= 128 ? 255 : 0;
  }
  writeAlpha(alpha);
}

/* Returns the mask, white for the area to regenerate; undefined: it is empty. */
async function maskNow() {
  const grey = readAlpha();
  return grey.includes(255) ? greyPng(grey, canvas.width, canvas.height) : undefined;
}

async function prepare(image, mask) {
  const bitmap = await createImageBitmap(image);
  const scale = Math.min(1, mostMask / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  byId('mask-image').src = URL.createObjectURL(image);
  stage.style.aspectRatio = `${bitmap.width} / ${bitmap.height}`;
  stage.style.setProperty('--ratio', bitmap.width / bitmap.height);
  if (mask)
    await readMask(mask);
  history = [];
  note();
  brush = { x: canvas.width / 2, y: canvas.height / 2 };
  view = { x: 0, y: 0, scale: 1 };
  showView();
  showRing();
}

/* Opens the editor. Resolves to the mask when it is closed in any way. */
export async function editMask(image, mask) {
  await prepare(image, mask);
  dialog.showModal();
  canvas.focus();
  await new Promise((resolve) => {
    dialog.onclose = resolve;
  });
  URL.revokeObjectURL(byId('mask-image').src);
  return maskNow();
}

async function loadMask(event) {
  const file = event.target.files[0];
  if (!file)
    return;
  try {
    await readMask(file);
    byId('mask-hint').className = '';
  } catch {
    writeAlpha(history[at]);
    byId('mask-hint').className = 'field-error';
    byId('mask-hint').textContent = `${file.name} cannot be read as an image by this browser.`;
  }
  note();
  event.target.value = '';
}

export function beginMask() {
  const events = { pointerdown: onDown, pointermove: onMove, pointerup: onUp,
                   pointercancel: onUp };
  for (const [type, action] of Object.entries(events))
    canvas.addEventListener(type, action);
  dialog.addEventListener('keydown', onKey);
  byId('mask-area').addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), event.clientX, event.clientY);
  }, { passive: false });
  byId('mask-history').append(
    iconButton('undo', 'Undo', () => step(-1), { id: 'undo' }),
    iconButton('redo', 'Redo', () => step(1), { id: 'redo' }),
    iconButton('minus', 'Zoom out', () => zoomBy(0.8)),
    iconButton('plus', 'Zoom in', () => zoomBy(1.25)),
    iconButton('fit', 'Whole image', () => zoomBy(0)));
  byId('erase').addEventListener('click', () => {
    byId('erase').ariaPressed = String(!erases());
  });
  byId('brush').addEventListener('input', showRing);
  byId('mask-invert').addEventListener('click', () => change((a) => 255 - a));
  byId('mask-clear').addEventListener('click', () => change(() => 0));
  byId('mask-load').addEventListener('click', () => byId('mask-file').click());
  byId('mask-file').addEventListener('change', loadMask);
  byId('mask-done').addEventListener('click', () => dialog.close());
}
