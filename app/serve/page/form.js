/* form.js - the form: shows the fields of the selected model, reads a request, restores settings
 *
 * Prompt, seed and similar fields are common to all models. Steps, guidance, size and similar ones
 * are stored per model, and start with its defaults. */
import { byId, make } from './dom.js';
import { clearErrors } from './errors.js';
import { givenFiles, shapeBlob, showImages } from './images.js';
import { beginSize, showSize } from './size.js';
import { loadForm, saveForm } from './store.js';

const form = byId('form');
const common = ['prompt', 'negative_prompt', 'seed', 'n'];
const own = ['width', 'height', 'num_inference_steps', 'guidance_scale', 'num_frames', 'fps',
             'strength', 'scheduler', 'conditioning_scale', 'control_mode', 'layers'];
const mostPreviews = 10;        /* of an image                                                 */

let models = [];                /* of GET /v1/models                                           */
let loras = [];                 /* names of LoRA files                                         */
let shown = '';                 /* the model that the fields are of                            */
const kept = loadForm();        /* what store.js keeps: {common, models: {id: {own}}, ...}     */
kept.models ||= {};

/* Assumed for a model without a description: it accepts all fields. */
const unknown = { makes: 'image', takes: ['image', 'mask_image', 'strength'], needs: [], images: 1,
                  multiple: 16, defaults: {} };

export const modelNow = () => ({ ...unknown, ...models.find((m) => m.id === form.model.value) });
export const makesVideo = () => modelNow().makes === 'video';
export const takes = (word) => modelNow().takes.includes(word);

/* Returns the name of the guidance scale: true_cfg_scale for models with distilled guidance. */
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
  found.conditioning_scale ||= '1';
  return found;
}

/* Sets a slider to its number, and extends its range if necessary. */
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

/* Shows the server's default as the placeholder of an empty field. */
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

/* Shows the fields of the model with their last values. */
export function showModel() {
  const { makes } = modelNow();
  const defaults = defaultsNow();
  /* The default strength depends on the mask, the default size on the image. */
  const fresh = { ...defaults, strength: '', scheduler: '', conditioning_scale: '',
                  control_mode: '',
                  ...shapeBlob(modelNow()) && { width: '', height: '' } };
  showFor('.for-image', makes === 'image');
  showFor('.for-video', makes === 'video');
  showFor('#layers-row', defaults.layers);
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

/* Updates elements that depend on the values. */
export function showAll() {
  showSize(modelNow());
  showSliders();
  showSeed();
}

/* ---- saved across a reload --------------------------------------------------------------- */

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

/* Remembers the seed of the last result, for the lock button. */
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

/* Returns the selected model, or else the first one, that accepts this input; '': none. */
export function modelThatTakes(word) {
  return takes(word) ? form.model.value : models.find((m) => m.takes?.includes(word))?.id || '';
}

export function chooseModel(name) {
  const found = models.find((m) => m.id === name || name.endsWith(`/${m.id}`));
  if (found)
    form.model.value = found.id;
  showModel();
}

/* "Automatic" is the model's default. */
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

/* Returns the names of LoRA files that the server does not have. */
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

/* Returns the request of the form as {fields, files, video}. Files have the field names of the
 * interface. */
export function readForm() {
  const video = makesVideo();
  const fields = { model: form.model.value, prompt: form.prompt.value };
  const files = givenFiles(modelNow());
  if (form.negative_prompt.value)
    fields.negative_prompt = form.negative_prompt.value;
  for (const name of ['width', 'height', 'num_inference_steps',
                      ...video ? ['num_frames', 'fps'] : ['n'],
                      ...modelNow().defaults.layers ? ['layers'] : []])
    addNumber(fields, name, form.elements[name].value);
  addNumber(fields, guidanceName(), form.guidance_scale.value);
  addNumber(fields, 'seed', form.seed.value.trim());
  if (files.image && takes('strength'))
    addNumber(fields, 'strength', form.strength.value);
  for (const name of ['conditioning_scale', 'control_mode'])
    if (form.elements[name].value && !form.elements[name].closest('[hidden]'))
      fields[name] = form.elements[name].value.replace(/\s+/g, '');
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

/* Restores settings; fields that they do not contain become empty. Returns the names of LoRA files
 * that the server does not have. */
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

/* Used by the lock button before the first result. */
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
