/* page.js - the page of xdit serve: connects its controls to the other modules */
import { getJson, request } from './api.js';
import { alertUser, byId, copyText, fail, make, news } from './dom.js';
import { clearErrors, fieldOfError, showError } from './errors.js';
import { beginForm, chooseModel, fillForm, keepForm, modelNow, modelThatTakes, noteSeed, readForm,
         setLoras, setModels, setSamplers, setSeed, showAll, takes } from './form.js';
import { beginGallery, shownResults } from './gallery.js';
import { beginImages, giveImage, lackingImages, openMask, places,
         shapeBlob } from './images.js';
import { beginJobs, cancel, forget, loadOlder, send } from './jobs.js';
import { beginMask } from './mask.js';
import { parametersOf } from './png.js';
import { followImage } from './size.js';
import { beginViewer, openViewer } from './viewer.js';

const form = byId('form');

/* ---- generating -------------------------------------------------------------------------- */

/* Shows an error at its field. Returns false if it concerns none. */
function showAtField(error) {
  const field = error.status === 400 || error.status === 404 ? fieldOfError(error) : null;
  const seen = field?.closest('.field') &&
    (field.closest('details') || field.closest('.field').checkVisibility());
  if (seen)
    showError(field, error.message);
  return Boolean(seen);
}

/* Validates fields in the browser. Returns false if one is invalid. */
function check() {
  /* The server checks step sizes, such as the multiple of a side. */
  const wrong = [...form.elements].find((e) => e.name && e.willValidate && !e.validity.valid &&
                                               !e.validity.stepMismatch && e.checkVisibility());
  if (wrong)
    showError(wrong, wrong.name === 'prompt' ? 'What should be generated?'
      : wrong.name === 'seed' ? 'A seed is a whole number.' : wrong.validationMessage);
  const lacking = !wrong && lackingImages(form.model.value);
  if (lacking) {
    const [, name, text] = lacking;
    const field = form.elements[name];
    if (field.closest('.field').checkVisibility())
      showError(field, text);
    else
      showError(form.elements.image, text);
  }
  return !wrong && !lacking;
}

async function generate() {
  alertUser('');
  clearErrors();
  if (!check())
    return;
  byId('generate').ariaBusy = 'true';
  try {
    await send(readForm());
    /* On a phone the results are below the form: scroll to the running request. */
    if (getComputedStyle(document.body).display === 'block')
      byId('results').scrollIntoView({ block: 'start' });
  } catch (error) {
    if (!showAtField(error))
      fail(error);
  }
  byId('generate').ariaBusy = 'false';
}

/* ---- actions on results ------------------------------------------------------------------ */

function useParameters(parameters, from) {
  const lacking = fillForm(parameters);
  alertUser(lacking.length
    ? `The server has no LoRA file ${lacking.join(', ')}; other settings are in the form.` : '');
  news(`The form has the settings of ${from}`);
  form.prompt.focus();
}

/* Uses a result as an input image of the selected model, or of the first one that accepts it. */
async function useImage(file, word) {
  const model = modelThatTakes(word);
  if (!model)
    throw new Error('No model of this server starts from an image.');
  if (model !== form.model.value) {
    keepForm();
    chooseModel(model);
    keepForm();
  }
  await giveImage('start', file);
  alertUser('');
}

async function fileOf(result) {
  const blob = await (await request(result.url)).blob();
  return new File([blob], result.file, { type: blob.type });
}

/* Returns the menu of a result: [label, function]. */
function actionsOf(result) {
  const { prompt, seed } = result.parameters;
  const count = shownResults().filter((r) => r.job === result.job).length;
  const toImage = async (word, after) => {
    await useImage(await fileOf(result), word);
    byId('start').scrollIntoView({ block: 'nearest' });
    after?.();
  };
  const list = [['Use these settings', () => useParameters(result.parameters, 'the result')],
                ['Use this seed', () => setSeed(seed)]];
  if (!result.video && modelThatTakes('image'))
    list.push(['Start from this image', () => toImage('image').catch(fail)]);
  if (!result.video && modelThatTakes('mask_image'))
    list.push(['Change a part of it', () => toImage('mask_image', openMask).catch(fail)]);
  if (!result.video && modelNow().images > 1)
    list.push(['Add to the images', async () => {
      await giveImage('more', await fileOf(result)).catch(fail);
    }]);
  if (!result.video && shownResults().filter((r) => !r.video).length > 1)
    list.push(['Compare', () => openViewer(result, true)]);
  list.push(['Copy the prompt', () => copyText(prompt || '', 'The prompt is')],
            ['Copy the seed', () => copyText(String(seed), 'The seed is')],
            [count > 1 ? `Delete all ${count} of this request` : 'Delete',
             () => forget(result.job).catch(fail)]);
  return list;
}

/* ---- files ------------------------------------------------------------------------------- */

async function readParameters(file) {
  const parameters = await parametersOf(new Uint8Array(await file.arrayBuffer()));
  if (parameters)
    useParameters(parameters, file.name || 'the file');
  else
    fail(new Error(`${file.name || 'The file'} is not a PNG file with settings.`));
}

/* Shows drop targets over the page while a file is dragged. */
function showDrops() {
  const drops = byId('drops');
  if (!drops.hidden)
    return;
  drops.replaceChildren(...[...places(), ['read', 'Use its settings']].map(([place, text]) => {
    const target = make('div', { className: 'target', textContent: text });
    target.dataset.place = place;
    return target;
  }));
  drops.hidden = false;
}

function onDrag(event) {
  if (!event.dataTransfer.types.includes('Files'))
    return;                     /* a text that is dragged into a field                         */
  event.preventDefault();
  showDrops();
  for (const target of byId('drops').children)
    target.classList.toggle('over', target === event.target);
}

function onDrop(event) {
  const place = event.target.dataset?.place;
  byId('drops').hidden = true;
  if (!event.dataTransfer.types.includes('Files'))
    return;
  event.preventDefault();
  for (const file of [...event.dataTransfer.files].slice(0, place === 'more' ? undefined : 1))
    if (place === 'read')
      readParameters(file);
    else if (place)
      giveImage(place, file).catch(fail);
}

function onDragLeave(event) {
  if (!event.relatedTarget)     /* out of the window                                           */
    byId('drops').hidden = true;
}

function onPaste(event) {
  const file = [...event.clipboardData.files].find((f) => f.type.startsWith('image/'));
  if (!file)
    return;
  event.preventDefault();
  if (takes('image'))
    giveImage('start', file).catch(fail);
  else
    fail(new Error(`${form.model.value} does not accept a start image.`));
}

function beginFiles() {
  byId('read').addEventListener('click', () => byId('read-file').click());
  byId('read-file').addEventListener('change', (event) => {
    if (event.target.files[0])
      readParameters(event.target.files[0]);
    event.target.value = '';
  });
  document.addEventListener('drop', onDrop);
  document.addEventListener('dragover', onDrag);
  document.addEventListener('dragleave', onDragLeave);
  document.addEventListener('paste', onPaste);
}

/* ---- start ------------------------------------------------------------------------------- */

async function showServer() {
  const health = await getJson('health');
  const models = (await getJson('v1/models')).data;
  byId('server').textContent = `${health.version} · ${models.length} ` +
    `model${models.length === 1 ? '' : 's'}`;
  setSamplers((await getJson('sdapi/v1/samplers')).map((s) => s.name));
  setLoras((await getJson('sdapi/v1/loras')).map((l) => l.name));
  setModels(models);
  await loadOlder();
}

function begin() {
  beginForm();
  beginMask();
  beginImages(fail);
  beginFiles();
  beginViewer();
  beginGallery({ actions: actionsOf, open: openViewer, forget: (id) => forget(id).catch(fail),
                 cancel: (id) => cancel(id).catch(fail) });
  beginJobs({ showAtField, made: (result) => noteSeed(result.seed),
              hint: [...byId('status').childNodes] });
  form.addEventListener('given', (event) => {
    if (event.detail === 'start' || event.detail === 'control')
      followImage(shapeBlob(modelNow()));
    showAll();
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    generate();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) &&
        !document.querySelector('dialog[open]'))
      form.requestSubmit();
  });
  byId('alert-close').addEventListener('click', () => alertUser(''));
  showServer().catch(fail);
}

begin();
