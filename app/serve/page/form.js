/* form.js - the form: what the chosen model takes, the fields of a request, parameters put back */
import { make } from './gallery.js';
import { maskBlob, startBlob } from './mask.js';

const byId = (id) => document.getElementById(id);
const form = byId('form');

const mostPreviews = 10;        /* of an image                                                 */

let models = [];                /* of GET /v1/models                                           */
let loras = [];                 /* names of LoRA files                                         */

/* What a server says that knows nothing of a model: all that the form has may be sent. */
const unknown = { makes: 'image', takes: ['image', 'mask_image', 'strength'], needs: [],
                  defaults: {} };

export const modelNow = () => ({ ...unknown, ...models.find((m) => m.id === form.model.value) });
export const makesVideo = () => modelNow().makes === 'video';
export const takesImage = () => modelNow().takes.includes('image');

/* Models whose guidance is the distilled one are guided by true_cfg_scale. */
const guidanceName = () =>
  modelNow().defaults.true_cfg_scale === undefined ? 'guidance_scale' : 'true_cfg_scale';

function showFor(selector, visible) {
  for (const element of document.querySelectorAll(selector))
    element.hidden = !visible;
}

/* Shows what the model takes, and its defaults where a field is empty. */
export function showModel() {
  const { makes, takes, images, defaults } = modelNow();
  showFor('.for-image', makes === 'image');
  showFor('.for-video', makes === 'video');
  showFor('#start', takes.includes('image'));
  showFor('#mask-tools, #mask', takes.includes('mask_image'));
  showFor('#strength-row', takes.includes('strength'));
  showFor('#more-row', images > 1);
  showFor('#last-row', takes.includes('last_image'));
  for (const name of ['width', 'height', 'num_inference_steps', 'num_frames', 'fps'])
    form.elements[name].placeholder = defaults[name] ?? '';
  form.guidance_scale.placeholder = defaults[guidanceName()] ?? '';
}

export function setModels(list) {
  models = list;
  form.model.replaceChildren(...list.map((m) => make('option', { value: m.id, textContent:
    m.makes === 'video' ? `${m.id} (video)` : m.id })));
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
                                 value: scale });
  const remove = make('button', { type: 'button', textContent: 'Remove',
                                  ariaLabel: `Remove LoRA ${number}` });
  const row = make('li', {}, make('div', {}, make('label', { htmlFor: select.id, textContent:
    `LoRA ${number}` }), select), make('div', {}, make('label', { htmlFor: weight.id, textContent:
    'Scale', ariaLabel: `Scale of LoRA ${number}` }), weight), remove);
  weight.ariaLabel = `Scale of LoRA ${number}`;
  select.value = name;
  remove.addEventListener('click', () => {
    row.remove();
    byId('lora-add').focus();
  });
  byId('lora-rows').append(row);
  return select;
}

export function setLoras(names) {
  loras = names;
  byId('loras').hidden = !names.length;
}

function lorasNow() {
  return [...byId('lora-rows').children].map((row) => ({
    name: row.querySelector('select').value, scale: Number(row.querySelector('input').value) }));
}

/* ---- a request --------------------------------------------------------------------------- */

/* A new one for each request that names none, so that the result can be told. */
function randomSeed() {
  return String(crypto.getRandomValues(new Uint32Array(1))[0]);
}

function addNumber(fields, name, value) {
  if (value !== '')
    fields[name] = Number.isSafeInteger(Number(value)) || !/^\d+$/.test(value) ? Number(value)
                                                                               : value;
}

async function readFiles(video) {
  const { takes, images } = modelNow();
  const image = takes.includes('image') ? startBlob() : null;
  if (!image)
    return {};
  const last = takes.includes('last_image') ? byId('last-file').files[0] : null;
  if (video)
    return { input_reference: image, ...last && { last_image: last } };
  const mask = takes.includes('mask_image') ? await maskBlob() : null;
  return { image, ...mask && { mask },
           'image[]': images > 1 ? [...byId('more-files').files] : [] };
}

/* {fields, files, video}: what the form asks for. Files have the names of the interface;
 * without an image there are none. */
export async function readForm() {
  const video = makesVideo();
  const { takes } = modelNow();
  const fields = { model: form.model.value, prompt: form.prompt.value };
  const files = await readFiles(video);
  if (form.negative_prompt.value)
    fields.negative_prompt = form.negative_prompt.value;
  for (const name of ['width', 'height', 'num_inference_steps',
                      ...video ? ['num_frames', 'fps'] : ['n']])
    addNumber(fields, name, form.elements[name].value);
  addNumber(fields, guidanceName(), form.guidance_scale.value);
  addNumber(fields, 'seed', form.seed.value.trim() || randomSeed());
  if (files.image && takes.includes('strength'))
    addNumber(fields, 'strength', form.strength.value);
  if (form.scheduler.value)
    fields.scheduler = form.scheduler.value;
  if (lorasNow().length)
    fields.lora = lorasNow();
  if (byId('previews').checked)
    fields.previews = mostPreviews;
  if (!fields.model)
    delete fields.model;
  return { fields, files, video };
}

/* ---- parameters back into the form ------------------------------------------------------- */

function chooseModel(name) {
  const found = models.find((m) => m.id === name || name.endsWith(`/${m.id}`));
  if (found)
    form.model.value = found.id;
}

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
  showModel();
  for (const name of ['prompt', 'negative_prompt', 'width', 'height', 'num_inference_steps',
                      'num_frames', 'fps', 'seed', 'strength'])
    form.elements[name].value = parameters[name] ?? '';
  form.guidance_scale.value = parameters[guidanceName()] ?? parameters.guidance_scale ?? '';
  chooseSampler(parameters.scheduler ?? '');
  byId('lora-rows').replaceChildren();
  const lacking = [];
  for (const lora of parameters.loras || [])
    if (loras.includes(lora.name))
      addLora(lora.name, lora.scale);
    else
      lacking.push(lora.name);
  return lacking;
}

/* Marks the field that the server's sentence is about; the one that was marked before is not. */
export function markField(param) {
  const names = { true_cfg_scale: 'guidance_scale', num_images_per_prompt: 'n', size: 'width' };
  for (const element of form.querySelectorAll('[aria-invalid]'))
    element.removeAttribute('aria-invalid');
  const field = param && form.elements[names[param] || param];
  if (field instanceof HTMLElement) {
    field.setAttribute('aria-invalid', 'true');
    field.focus();
  }
}

export function beginForm() {
  form.model.addEventListener('change', showModel);
  byId('lora-add').addEventListener('click', () => addLora(loras[0], 1).focus());
}
