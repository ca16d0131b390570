/* gallery.js - cards of running requests and of results, and their menu */
import { byId, icon, iconButton, make } from './dom.js';
import { ownParameters } from './png.js';

const gallery = byId('gallery');
const jobs = new Map();         /* id -> {job, number, run: li, results: [li]}                 */
const results = new WeakMap();  /* li -> result                                                */
let count = 0;                  /* of cards                                                    */
let hooks = {};

const labels = {
  model: 'Model', negative_prompt: 'Negative prompt', num_inference_steps: 'Steps',
  guidance_scale: 'Guidance', true_cfg_scale: 'True guidance', scheduler: 'Sampler',
  strength: 'Strength', conditioning_scale: 'Control scale', control_mode: 'Kind of control',
  num_frames: 'Frames', fps: 'Frames per second', layers: 'Layers',
};

/* All results on the page, in order. */
export const shownResults = () =>
  [...gallery.children].map((li) => results.get(li)).filter(Boolean);

function showEmpty() {
  byId('results-none').hidden = gallery.childElementCount > 0;
}

/* ---- the card of a running request ------------------------------------------------------- */

function runCard(job, number) {
  const bar = make('progress', { max: 100, value: 0, ariaLabel: `Progress of request ${number}` });
  const cancel = make('button', { type: 'button', className: 'cancel', textContent: 'Cancel' },
                      make('span', { className: 'unseen', textContent: ` request ${number}` }));
  cancel.addEventListener('click', () => hooks.cancel(job.id));
  return make('li', { className: 'card run' },
    make('div', { className: 'media waiting' }, icon('image'), make('img', { hidden: true,
      alt: `Preview of request ${number}` }), make('span', { className: 'percent' }),
         bar),
    make('div', { className: 'about' },
         make('p', { className: 'prompt', textContent: job.prompt || 'No prompt' }),
         make('div', { className: 'row' }, make('p', { className: 'state' }), cancel)));
}

function showRun(run, job, words) {
  const preview = run.querySelector('img');
  run.classList.toggle('queued', job.status === 'queued');
  run.querySelector('progress').value = job.progress;
  run.querySelector('.state').replaceChildren(...words.flatMap((text) =>
    [' ', make('span', { textContent: text })]).slice(1));
  run.querySelector('.percent').textContent = job.status === 'queued' ? '' : `${job.progress} %`;
  if (job.previews && preview.dataset.shown !== String(job.previews)) {
    preview.dataset.shown = job.previews;
    preview.src = `v1/jobs/${job.id}/content?variant=preview&n=${job.previews}`;
    preview.hidden = false;
  }
}

export function failJob(job, message) {
  const { run, number } = jobs.get(job.id);
  const dismiss = make('button', { type: 'button', textContent: 'Dismiss' },
                       make('span', { className: 'unseen', textContent: ` request ${number}` }));
  dismiss.addEventListener('click', () => hooks.forget(job.id));
  run.className = 'card failed';
  run.replaceChildren(make('div', { className: 'about' },
    make('p', { className: 'error', role: 'alert', textContent: message }),
    make('p', { className: 'prompt', textContent: job.prompt || 'No prompt' }), dismiss));
}

/* ---- the card of a result ---------------------------------------------------------------- */

const extensions = { 'image/png': 'png', 'image/jpeg': 'jpg', 'image/webp': 'webp',
                     'image/gif': 'gif', 'video/mp4': 'mp4', 'video/webm': 'webm',
                     'video/quicktime': 'mov', 'video/x-matroska': 'mkv' };

function resultOf(job, index) {
  const made = job.results[index];
  return { ...made, job: job.id, number: ++count,
           url: made.url.replace(/^\//, ''), video: job.kind === 'video',
           parameters: ownParameters(made.parameters),
           file: `xdit-${made.seed}-${job.id.slice(-6)}.${extensions[made.type] || 'bin'}` };
}

function parameterList(result) {
  const { parameters } = result;
  const rows = [['Seed', result.seed], ['Size', `${result.width} x ${result.height}`],
    ...Object.entries(labels).map(([name, label]) => [label, parameters[name]]),
    ...parameters.loras.map((l) => ['LoRA', `${l.name}: ${l.scale}`])];
  return make('dl', {}, ...rows.filter(([, value]) => value).flatMap(([label, value]) =>
    [make('dt', { textContent: label }), make('dd', { textContent: value })]));
}

function resultCard(result) {
  const { number, parameters } = result;
  const open = make('button', { type: 'button', className: 'media', ariaLabel:
    `Open result ${number}` }, make('img', { src: result.video ? `${result.url}&variant=thumbnail`
    : result.url, loading: 'lazy', alt: '', width: result.width, height: result.height }));
  if (result.video)
    open.append(make('span', { className: 'play' }, icon('play')));
  open.addEventListener('click', () => hooks.open(result));
  const prompt = make('span', { className: 'prompt', textContent: parameters.prompt || 'No prompt'
  });
  const save = make('a', { className: 'icon-button', href: result.url, download: result.file,
                           ariaLabel: `Save result ${number}`, title: 'Save' }, icon('save'));
  const more = iconButton('more', `More for result ${number}`, () => openMenu(more, result),
                          { ariaHasPopup: 'menu' });
  return make('li', { className: 'card', id: `result-${number}` }, open,
    make('div', { className: 'about' }, make('details', {}, make('summary', {}, prompt),
                                             parameterList(result)),
         make('div', { className: 'row' }, make('p', { className: 'hint' },
           make('span', { textContent: `${result.width} x ${result.height}` }), ' ',
           make('span', { textContent: `seed ${result.seed}` })), save, more)));
}

/* ---- jobs -------------------------------------------------------------------------------- */

/* Returns the element before which the results of a job are inserted. */
function placeOf(run) {
  let next = run;
  while (next?.classList.contains('run'))
    next = next.nextElementSibling;
  return next;
}

export const hasJob = (id) => jobs.has(id);

/* Inserts the card of a job: running requests first, then queued ones, in order. */
export function addJob(job, older) {
  if (jobs.has(job.id))
    return;
  const number = ++count;
  const run = runCard(job, number);
  jobs.set(job.id, { job, run, number, results: [] });
  if (older)
    gallery.append(run);
  else
    gallery.insertBefore(run, gallery.querySelector('.card:not(.run)'));
  showEmpty();
}

/* Inserts new results after the cards of running requests. */
export function showJob(job, words) {
  const entry = jobs.get(job.id);
  if (!entry)
    return;
  entry.job = job;
  for (let i = entry.results.length; i < job.results.length; i++) {
    const result = resultOf(job, i);
    const card = resultCard(result);
    results.set(card, result);
    if (entry.results.length)
      entry.results.at(-1).after(card);
    else
      gallery.insertBefore(card, placeOf(entry.run));
    entry.results.push(card);
  }
  if (job.status === 'completed')
    removeCard(entry.run, entry.results[0]?.querySelector('.media'));
  else if (job.status === 'cancelled')
    removeCard(entry.run, entry.results[0]?.querySelector('.media'));
  else if (job.status === 'failed')
    failJob(job, job.error.message);
  else
    showRun(entry.run, job, words);
}

/* Moves the focus to `next` if the card has it. */
function removeCard(card, next) {
  const focused = card.contains(document.activeElement);
  card.remove();
  if (focused)
    (next || byId('generate')).focus();
  showEmpty();
}

/* Removes a job with its results. */
export function removeJob(id) {
  const entry = jobs.get(id);
  if (!entry)
    return;
  removeCard(entry.run);
  entry.results.forEach((card) => removeCard(card));
  jobs.delete(id);
}

/* ---- the menu ---------------------------------------------------------------------------- */

function openMenu(button, result) {
  const menu = byId('menu');
  menu.replaceChildren(...hooks.actions(result).map(([text, action]) => {
    const item = make('button', { type: 'button', role: 'menuitem', textContent: text });
    item.addEventListener('click', () => {
      menu.hidePopover();
      action();
    });
    return item;
  }));
  menu.ariaLabel = `Result ${result.number}`;
  menu.showPopover();
  const at = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
  menu.style.top = `${at.bottom + height + 8 > innerHeight ? Math.max(8, at.top - height - 4)
    : at.bottom + 4}px`;
  menu.onkeydown = (event) => moveInMenu(event, menu);
  menu.ontoggle = (event) => {
    if (event.newState === 'closed' && menu.contains(document.activeElement))
      button.focus();
  };
  menu.firstChild.focus();
}

function moveInMenu(event, menu) {
  const items = [...menu.children];
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 };
  if (event.key === 'Tab')
    menu.hidePopover();
  if (to[event.key] === undefined)
    return;
  event.preventDefault();
  items[to[event.key] % items.length].focus();
}

/* hooks: cancel(id), forget(id), open(result), actions(result): [[words, function]]. */
export function beginGallery(given) {
  hooks = given;
}
