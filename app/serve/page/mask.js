/* mask.js - the image to start from, and a mask that is drawn over it
 *
 * The mask is a canvas of the image's size, or of a part of it where the image is large: the server
 * resizes it. What is drawn there is generated anew. */
import { greyPng, jpegOrientation } from './png.js';

const byId = (id) => document.getElementById(id);
const image = byId('start-image');
const canvas = byId('mask');
const pen = canvas.getContext('2d', { willReadFrequently: true });
const readable = ['image/png', 'image/jpeg', 'image/webp'];
const mostSide = 8192;          /* pixels of a canvas that every browser has */
const mostMask = 2048;

const mostHigh = 32;            /* rem, on the page                                            */

let blob = null;                /* what is sent */
let brush = { x: 0, y: 0, down: false };        /* in pixels of the canvas; down: it draws */
let backup = null;              /* the canvas without the ring that shows the brush */

export const startBlob = () => blob;

/* The file itself, or where the server could not read it, or would not turn it, its pixels. */
async function sendable(file, bitmap) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const turned = file.type === 'image/jpeg' && jpegOrientation(bytes) !== 1;
  if (readable.includes(file.type) && !turned)
    return file;
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [bitmap.width, bitmap.height];
  copy.getContext('2d').drawImage(bitmap, 0, 0);
  return new Promise((resolve) => {
    copy.toBlob(resolve, 'image/png');
  });
}

async function decode(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name || 'This file'} is no image that this browser can read.`);
  }
  if (bitmap.width > mostSide || bitmap.height > mostSide)
    throw new Error(`The image has ${bitmap.width} x ${bitmap.height} pixels; a side may have ` +
                    `${mostSide}.`);
  return bitmap;
}

export async function setStart(file) {
  const bitmap = await decode(file);
  blob = await sendable(file, bitmap);
  if (image.src)
    URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(blob);
  const scale = Math.min(1, mostMask / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  byId('stage').style.width = `${mostHigh * bitmap.width / bitmap.height}rem`;
  clearMask();
  byId('start-there').hidden = false;
}

export function removeStart() {
  if (image.src)
    URL.revokeObjectURL(image.src);
  image.removeAttribute('src');
  blob = null;
  clearMask();
  byId('start-there').hidden = true;
  byId('start-file').value = '';
}

export function clearMask() {
  backup = null;
  brush = { x: canvas.width / 2, y: canvas.height / 2, down: false };
  pen.clearRect(0, 0, canvas.width, canvas.height);
}

/* White is generated anew; null: nothing is. */
export async function maskBlob() {
  hideBrush();
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const grey = new Uint8Array(data.length / 4);
  for (let i = 0; i < grey.length; i++)
    grey[i] = data[4 * i + 3] >= 128 ? 255 : 0;
  return !grey.includes(255) ? null : greyPng(grey, canvas.width, canvas.height);
}

/* ---- drawing ----------------------------------------------------------------------------- */

/* The slider is a part of the shorter side, in per cent. */
function brushWidth() {
  return Math.max(1, byId('brush').value / 100 * Math.min(canvas.width, canvas.height));
}

function maskColour() {
  return getComputedStyle(document.documentElement).getPropertyValue('--mask');
}

function drawTo(x, y) {
  pen.globalCompositeOperation = byId('erase').checked ? 'destination-out' : 'source-over';
  pen.strokeStyle = maskColour();
  pen.lineWidth = brushWidth();
  pen.lineCap = pen.lineJoin = 'round';
  pen.beginPath();
  pen.moveTo(brush.x, brush.y);
  pen.lineTo(x, y + 0.01);      /* a line without length would leave no dot                    */
  pen.stroke();
  pen.globalCompositeOperation = 'source-over';
  [brush.x, brush.y] = [x, y];
}

function placeOf(event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width * canvas.width,
          (event.clientY - box.top) / box.height * canvas.height];
}

function onPointer(event) {
  const [x, y] = placeOf(event);
  if (event.type === 'pointerdown') {
    canvas.setPointerCapture(event.pointerId);
    hideBrush();
    brush = { x, y, down: true };
    drawTo(x, y);
  } else if (brush.down) {
    for (const e of event.getCoalescedEvents?.() || [])
      drawTo(...placeOf(e));
    drawTo(x, y);
  }
  if (event.type === 'pointerup' || event.type === 'pointercancel')
    brush.down = false;
}

/* A ring where the keyboard's brush is; the canvas is put back before anything else is drawn. */
function showBrush() {
  hideBrush();
  backup = pen.getImageData(0, 0, canvas.width, canvas.height);
  const unit = Math.max(1, Math.min(canvas.width, canvas.height) / 150);
  for (const [colour, width] of [['#fff', 3 * unit], ['#000', unit]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    pen.arc(brush.x, brush.y, brushWidth() / 2, 0, 2 * Math.PI);
    pen.stroke();
  }
}

function hideBrush() {
  if (backup)
    pen.putImageData(backup, 0, 0);
  backup = null;
}

const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function onKey(event) {
  const arrow = arrows[event.key];
  if (!arrow && event.key !== ' ')
    return;
  event.preventDefault();
  hideBrush();
  const step = Math.max(1, brushWidth() / 2);
  if (arrow) {
    brush.x = Math.min(canvas.width, Math.max(0, brush.x + arrow[0] * step));
    brush.y = Math.min(canvas.height, Math.max(0, brush.y + arrow[1] * step));
  } else {
    drawTo(brush.x, brush.y);
  }
  showBrush();
}

/* What is bright in a file becomes the mask. */
async function readMask(file) {
  const bitmap = await decode(file);
  clearMask();
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const pixels = pen.getImageData(0, 0, canvas.width, canvas.height);
  pen.fillStyle = maskColour();
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  for (let i = 0; i < pixels.data.length; i += 4) {
    const [r, g, b, a] = pixels.data.subarray(i, i + 4);
    const bright = (0.299 * r + 0.587 * g + 0.114 * b) * a / 255 >= 128;
    pixels.data.set([red, green, blue, bright ? 255 : 0], i);
  }
  pen.putImageData(pixels, 0, 0);
}

/* `fail` shows a sentence. */
export function beginMask(fail) {
  for (const type of ['pointerdown', 'pointermove', 'pointerup', 'pointercancel'])
    canvas.addEventListener(type, onPointer);
  canvas.addEventListener('keydown', onKey);
  canvas.addEventListener('blur', hideBrush);
  byId('mask-clear').addEventListener('click', clearMask);
  byId('mask-file').addEventListener('change', async (event) => {
    try {
      if (event.target.files[0])
        await readMask(event.target.files[0]);
    } catch (error) {
      fail(error.message);
    }
    event.target.value = '';
  });
  byId('start-remove').addEventListener('click', () => {
    removeStart();
    byId('start-file').focus();
  });
}
