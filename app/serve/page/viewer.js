/* viewer.js - shows a result in the full window: navigation, zoom, comparison of two */
import { request } from './api.js';
import { byId, iconButton, make } from './dom.js';
import { shownResults } from './gallery.js';

const dialog = byId('viewer');
const stage = byId('viewer-stage');
let now = null;                 /* the result that is shown                                    */
let pinned = null;              /* the one that it is compared with                            */
let view = { x: 0, y: 0, scale: 1 };
let drag = null;

/* ---- zoom -------------------------------------------------------------------------------- */

function showView() {
  for (const image of stage.querySelectorAll('img'))
    image.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.scale})`;
  stage.classList.toggle('zoomed', view.scale > 1);
  showDivider();
}

/* Keeps the divider at its place in the window while the image is zoomed. */
function showDivider() {
  const [first] = stage.querySelectorAll('.layer.over');
  if (first)
    first.style.clipPath = `inset(0 0 0 ${byId('compare-at').value}%)`;
  stage.style.setProperty('--divider', `${byId('compare-at').value}%`);
}

function zoom(factor, clientX, clientY) {
  const box = stage.getBoundingClientRect();
  const scale = Math.min(16, Math.max(1, view.scale * factor));
  const [x, y] = [(clientX ?? box.left + box.width / 2) - box.left - box.width / 2,
                  (clientY ?? box.top + box.height / 2) - box.top - box.height / 2];
  view = scale === 1 ? { x: 0, y: 0, scale } : { x: x - (x - view.x) * scale / view.scale,
                                                 y: y - (y - view.y) * scale / view.scale, scale };
  showView();
}

/* ---- display ----------------------------------------------------------------------------- */

async function showVideo(result) {
  const video = make('video', { controls: true, loop: true, autoplay: true, muted: true,
                                ariaLabel: 'The video' });
  stage.replaceChildren(video);
  const blob = await (await request(result.url)).blob();
  video.src = URL.createObjectURL(blob);
  video.onemptied = () => URL.revokeObjectURL(video.src);
  video.onerror = () => {
    byId('viewer-text').textContent = `This browser cannot play ${result.type}: save the file.`;
  };
}

function layer(result, over) {
  return make('div', { className: `layer${over ? ' over' : ''}` },
              make('img', { src: result.url, alt: result.parameters.prompt || 'Result',
                            draggable: false }));
}

function show() {
  const all = shownResults();
  const at = all.findIndex((r) => r.url === now.url);
  const two = pinned && pinned.url !== now.url && !now.video;
  if (now.type.startsWith('video/'))
    showVideo(now);
  else
    stage.replaceChildren(...two ? [layer(pinned), layer(now, true)] : [layer(now)]);
  stage.classList.toggle('two', Boolean(two));
  byId('compare-row').hidden = !two;
  byId('viewer-title').textContent = two
    ? `Seed ${pinned.seed} on the left, seed ${now.seed} on the right`
    : `${at + 1} of ${all.length}`;
  byId('viewer-text').textContent = now.parameters.prompt || '';
  byId('viewer-compare').ariaPressed = String(Boolean(pinned));
  byId('viewer-compare').hidden = now.video || all.filter((r) => !r.video).length < 2;
  for (const button of byId('viewer-tools').querySelectorAll('.zoom'))
    button.hidden = now.video;
  byId('viewer-save').href = now.url;
  byId('viewer-save').download = now.file;
  byId('viewer-before').disabled = at <= 0;
  byId('viewer-next').disabled = at >= all.length - 1;
  showView();
}

function step(by) {
  const all = shownResults().filter((r) => !pinned || !r.video);
  const to = all[all.findIndex((r) => r.url === now.url) + by];
  if (!to)
    return;
  now = to;
  view = { x: 0, y: 0, scale: 1 };
  show();
}

/* Starts a comparison: the current image on the left, the next one on the right. */
function toggleCompare() {
  const images = shownResults().filter((r) => !r.video);
  const at = images.findIndex((r) => r.url === now.url);
  if (pinned) {
    pinned = null;
  } else {
    pinned = now;
    now = images[at + 1] || images[at - 1] || now;
  }
  show();
}

export function openViewer(result, compare = false) {
  [now, pinned] = [result, null];
  view = { x: 0, y: 0, scale: 1 };
  dialog.showModal();
  show();
  if (compare)
    toggleCompare();
  stage.focus();
}

/* ---- keys and pointer -------------------------------------------------------------------- */

const keys = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), '+': () => zoom(1.25),
               '=': () => zoom(1.25), '-': () => zoom(0.8), '0': () => zoom(0),
               'c': toggleCompare };

function onKey(event) {
  if (!keys[event.key] || event.target.type === 'range' || event.target.tagName === 'VIDEO')
    return;
  event.preventDefault();
  keys[event.key]();
}

/* Drags the divider of a comparison, or a zoomed image. */
function onPointer(event) {
  const box = stage.getBoundingClientRect();
  if (event.type === 'pointerdown' && !now.video) {
    stage.setPointerCapture(event.pointerId);
    drag = event;
  } else if (event.type === 'pointerup' || event.type === 'pointercancel') {
    if (drag && event.pointerType === 'touch' && view.scale === 1 && !pinned &&
        Math.abs(event.clientX - drag.startX) > 60)
      step(event.clientX < drag.startX ? 1 : -1);
    drag = null;
    return;
  }
  if (!drag)
    return;
  if (pinned) {
    byId('compare-at').value = 100 * (event.clientX - box.left) / box.width;
    showDivider();
  } else if (view.scale > 1) {
    view = { ...view, x: view.x + event.clientX - drag.clientX,
             y: view.y + event.clientY - drag.clientY };
    showView();
  }
  drag = Object.assign(event, { startX: drag.startX ?? drag.clientX });
}

export function beginViewer() {
  const save = make('a', { id: 'viewer-save', className: 'icon-button', title: 'Save', ariaLabel:
    'Save this result' }, ...iconButton('save', '', () => {}).childNodes);
  stage.tabIndex = -1;
  byId('viewer-tools').append(
    iconButton('compare', 'Compare with another result', toggleCompare, { id: 'viewer-compare' }),
    iconButton('minus', 'Smaller', () => zoom(0.8), { className: 'icon-button zoom' }),
    iconButton('plus', 'Larger', () => zoom(1.25), { className: 'icon-button zoom' }),
    iconButton('fit', 'Whole', () => zoom(0), { className: 'icon-button zoom' }), save,
    iconButton('left', 'The one before', () => step(-1), { id: 'viewer-before' }),
    iconButton('right', 'The next one', () => step(1), { id: 'viewer-next' }));
  byId('viewer-title').after(iconButton('close', 'Close', () => dialog.close(), { id:
    'viewer-close' }));
  dialog.addEventListener('keydown', onKey);
  dialog.addEventListener('close', () => stage.replaceChildren());
  byId('compare-at').addEventListener('input', showDivider);
  for (const type of ['pointerdown', 'pointermove', 'pointerup', 'pointercancel'])
    stage.addEventListener(type, onPointer);
  stage.addEventListener('dblclick', (event) => zoom(view.scale > 1 ? 0 : 3, event.clientX,
                                                     event.clientY));
  stage.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), event.clientX, event.clientY);
  }, { passive: false });
}
