/* form.js - the form: what the chosen model takes, the fields of a request, settings put back.
 *
 * Prompt, seed and the like are common to all models; steps, guidance, size and the like are each
 * model's own, and begin with its defaults. */
import { byId, make } from './dom.js';
import { clearErrors } from './errors.js';
import { givenFiles, showImages, startBlob } from './images.js';
import { beginSize, showSize } from './size.js';
import { loadForm, saveForm } from './store.js';

const form = byId('form');
const common = ['prompt', 'negative_prompt', 'seed', 'n'];
const own = ['width', 'height', 'num_inference_steps', 'guidance_scale', 'num_frames', 'fps',
             'strength', 'scheduler'];
const mostPreviews = 10;        /* of an image                                                 */

let models = [];                /* of GET /v1/models                                           */
let loras = [];                 /* names of LoRA files                                         */
let shown = '';                 /* the model that the fields are of                            */
const kept = loadForm();        /* what store.js keeps: {common, models: {id: {own}}, ...}     */
kept.models ||= {};

/* What a server tells that knows nothing of a model: all that the form has may be sent. */
const unknown = { makes: 'image', takes: ['image', 'mask_image', 'strength'], needs: [], images: 1,
                  multiple: 16, defaults: {} };

export const modelNow = () => ({ ...unknown, ...models.find((m) => m.id === form.model.value) });
export const makesVideo = () => modelNow().makes === 'video';
export const takes = (word) => modelNow().takes.includes(word);

/* Models whose guidance is the distilled one are guided by true_cfg_scale. */
const guidanceName = () =>
  modelNow().defaults.true_cfg_scale === undefined ? 'guidance_scale' : 'true_cfg_scale';

function showFor(selector, visible) {
  for (const element of document.querySelectorAll(selector))
    element.hidden = !visible;
}

/* ---- defaults ---------------------------------------------------------------------------- */

function defaultsNow() {
  const { defaults } = modelNow();
  const found = Object.fromEntries(own.map((name) => [name, String(defaults[name] ?? '')]));
  found.guidance_scale = String(defaults[guidanceName()] ?? '');
  return found;
}

/* A slider follows its number, and reaches beyond it. */
function showSliders() {
  for (const slider of form.querySelectorAll('input[data-for]')) {
    const field = byId(slider.dataset.for);
    const standard = Number(field.placeholder) || 0;
    if (field.name !== 'strength')
      slider.max = Math.max(field.name === 'num_inference_steps' ? 50 : 10, 2 * standard,
                            Number(field.value));
    slider.value = field.value === '' ? standard : field.value;
  }
}

/* What the server takes where the field is empty. */
function standardOf(name, otherwise) {
  const value = modelNow().defaults[name];
  return value === undefined || Number(value) < 0 ? otherwise : String(value);
}

function showSeed() {
  byId('dice').ariaPressed = String(!form.seed.value);
  byId('lock').ariaPressed = String(Boolean(form.seed.value));
  form.seed.placeholder = standardOf('seed', 'random');
  byId('last-seed').textContent = kept.lastSeed ? `last ${kept.lastSeed}` : '';
}

/* Shows what the model takes, with the values that it had before. */
export function showModel() {
  const { makes } = modelNow();
  const defaults = defaultsNow();
  /* With a mask the usual strength is another one, and with an image the size is the image's. */
  const fresh = { ...defaults, strength: '', scheduler: '',
                  ...takes('image') && startBlob() && { width: '', height: '' } };
  showFor('.for-image', makes === 'image');
  showFor('.for-video', makes === 'video');
  for (const name of own) {
    form.elements[name].placeholder = defaults[name];
    form.elements[name].value = (kept.models[form.model.value] || fresh)[name] ?? '';
  }
  form.negative_prompt.placeholder = standardOf('negative_prompt', 'What to avoid');
  const sampler = standardOf('scheduler', '');
  form.scheduler.options[0].textContent = sampler ? `Automatic (${sampler})` : 'Automatic';
  shown = form.model.value;
  showImages(modelNow());
  showAll();
}

/* What follows from the values. */
export function showAll() {
  showSize(modelNow());
  showSliders();
  showSeed();
}

/* ---- kept through a reload --------------------------------------------------------------- */

export function keepForm() {
  kept.model = form.model.value;
  for (const name of common)
    kept[name] = form.elements[name].value;
  kept.previews = form.previews.checked;
  kept.loras = lorasNow();
  kept.advanced = byId('advanced').open;
  if (shown)
    kept.models[shown] = Object.fromEntries(own.map((n) => [n, form.elements[n].value]));
  saveForm(kept);
}

function onChange(event) {
  const field = event.target;
  if (field.dataset.for)
    byId(field.dataset.for).value = field.value;
  if (field === form.model)
    showModel();
  clearErrors(field.dataset.for ? byId(field.dataset.for) : field);
  showAll();
  keepForm();
}

/* After a run: the seed that was used, which "lock" takes. */
export function noteSeed(seed) {
  kept.lastSeed = String(seed);
  showSeed();
  saveForm(kept);
}

export function setModels(list) {
  models = list;
  const group = (label, makes) => make('optgroup', { label }, ...list.filter((m) =>
    (m.makes || 'image') === makes).map((m) => make('option', { value: m.id, textContent: m.id })));
  const groups = [group('Images', 'image'), group('Videos', 'video')];
  form.model.replaceChildren(...groups.filter((g) => g.childElementCount));
  if (list.some((m) => m.id === kept.model))
    form.model.value = kept.model;
  showModel();
}

/* The first model that takes this, the chosen one before others; '': none. */
export function modelThatTakes(word) {
  return takes(word) ? form.model.value : models.find((m) => m.takes?.includes(word))?.id || '';
}

export function chooseModel(name) {
  const found = models.find((m) => m.id === name || name.endsWith(`/${m.id}`));
  if (found)
    form.model.value = found.id;
  showModel();
}

/* "Automatic" is the model's own. */
export function setSamplers(names) {
  form.scheduler.replaceChildren(make('option', { value: '', textContent: 'Automatic' }),
    ...names.filter((n) => n !== 'Automatic').map((n) => make('option', { value: n,
                                                                          textContent: n })));
}

/* ---- LoRA files -------------------------------------------------------------------------- */

let rows = 0;

function addLora(name, scale) {
  const number = ++rows;
  const select = make('select', { id: `lora-${number}` }, ...loras.map((l) =>
    make('option', { value: l, textContent: l })));
  const weight = make('input', { id: `lora-scale-${number}`, type: 'number', step: 'any',
                                 value: scale, ariaLabel: `Scale of LoRA ${number}` });
  const remove = make('button', { type: 'button', textContent: 'Remove',
                                  ariaLabel: `Remove LoRA ${number}` });
  const row = make('li', {}, make('div', {}, make('label', { htmlFor: select.id, textContent:
    `LoRA ${number}` }), select), make('div', {}, make('label', { htmlFor: weight.id, textContent:
    'Scale' }), weight), remove);
  select.value = name;
  remove.addEventListener('click', () => {
    row.remove();
    keepForm();
    byId('lora-add').focus();
  });
  byId('lora-rows').append(row);
  return select;
}

export function setLoras(names) {
  loras = names;
  byId('loras').hidden = !names.length;
  setLoraRows(kept.loras || []);
}

/* The names of files that the server does not have. */
function setLoraRows(list) {
  byId('lora-rows').replaceChildren();
  for (const lora of list.filter((l) => loras.includes(l.name)))
    addLora(lora.name, lora.scale);
  return list.map((l) => l.name).filter((name) => !loras.includes(name));
}

function lorasNow() {
  return [...byId('lora-rows').children].map((row) => ({
    name: row.querySelector('select').value, scale: Number(row.querySelector('input').value) }));
}

/* ---- a request --------------------------------------------------------------------------- */

function addNumber(fields, name, value) {
  if (value !== '')
    fields[name] = Number.isSafeInteger(Number(value)) || !/^\d+$/.test(value) ? Number(value)
                                                                               : value;
}

/* {fields, files, video}: what the form asks for. Files have the names of the interface;
 * without an image there are none. */
export function readForm() {
  const video = makesVideo();
  const fields = { model: form.model.value, prompt: form.prompt.value };
  const files = givenFiles(modelNow());
  if (form.negative_prompt.value)
    fields.negative_prompt = form.negative_prompt.value;
  for (const name of ['width', 'height', 'num_inference_steps',
                      ...video ? ['num_frames', 'fps'] : ['n']])
    addNumber(fields, name, form.elements[name].value);
  addNumber(fields, guidanceName(), form.guidance_scale.value);
  addNumber(fields, 'seed', form.seed.value.trim());
  if (files.image && takes('strength'))
    addNumber(fields, 'strength', form.strength.value);
  if (form.scheduler.value)
    fields.scheduler = form.scheduler.value;
  if (lorasNow().length)
    fields.lora = lorasNow();
  if (form.previews.checked)
    fields.previews = mostPreviews;
  if (!fields.model)
    delete fields.model;
  return { fields, files, video };
}

/* ---- settings back into the form --------------------------------------------------------- */

function chooseSampler(name) {
  const options = [...form.scheduler.options];
  if (name && !options.some((o) => o.value === name))
    form.scheduler.append(make('option', { value: name, textContent: name }));
  form.scheduler.value = name;
}

/* The names of files that the server does not have; fields that are not named become empty. */
export function fillForm(parameters) {
  if (parameters.model)
    chooseModel(parameters.model);
  for (const name of ['prompt', 'negative_prompt', 'seed', ...own])
    form.elements[name].value = parameters[name] ?? '';
  form.guidance_scale.value = parameters[guidanceName()] ?? parameters.guidance_scale ?? '';
  chooseSampler(parameters.scheduler ?? '');
  const lacking = setLoraRows(parameters.loras || []);
  clearErrors();
  showAll();
  keepForm();
  return lacking;
}

export function setSeed(seed) {
  form.seed.value = seed;
  showSeed();
  keepForm();
}

/* For who keeps a seed before there was one. */
function drawSeed() {
  return String(crypto.getRandomValues(new Uint32Array(1))[0]);
}

function resetModel() {
  delete kept.models[form.model.value];
  shown = '';
  showModel();
  keepForm();
}

export function beginForm() {
  for (const name of common)
    form.elements[name].value = kept[name] ?? form.elements[name].value;
  form.previews.checked = kept.previews ?? true;
  byId('advanced').open = kept.advanced ?? false;
  beginSize();
  form.addEventListener('input', onChange);
  form.addEventListener('change', onChange);
  byId('advanced').addEventListener('toggle', keepForm);
  byId('lora-add').addEventListener('click', () => {
    addLora(loras[0], 1).focus();
    keepForm();
  });
  byId('dice').addEventListener('click', () => setSeed(''));
  byId('lock').addEventListener('click', () =>
    setSeed(form.seed.value ? '' : kept.lastSeed || drawSeed()));
  byId('reset').addEventListener('click', resetModel);
}
