/* page.js - the page of xdit serve: what its controls do. Strict, as every module. */
import { ServerError, getJson } from './api.js';
import { beginForm, fillForm, markField, modelNow, readForm, setLoras, setModels,
         setSamplers, takesImage } from './form.js';
import { addKept, addResult } from './gallery.js';
import { resumeVideos, run } from './jobs.js';
import { beginMask, setStart, startBlob } from './mask.js';
import { parametersOf } from './png.js';

const byId = (id) => document.getElementById(id);
const form = byId('form');

/* ---- what is said ------------------------------------------------------------------------ */

function fail(error) {
  byId('alert').textContent = error.message || String(error);
}

/* The request itself says why; the field is the one that the server's sentence is about. */
function refuse(error) {
  markField(error instanceof ServerError ? error.param : '');
}

function news(text) {
  byId('news').textContent = text;
}

/* ---- results ----------------------------------------------------------------------------- */

function deliver(result) {
  addResult({
    ...result,
    again: () => {
      form.seed.value = result.parameters.seed;
      generate();
    },
    use: () => useParameters(result.parameters, 'the result'),
    start: () => useStart(new File([result.blob], 'result', { type: result.blob.type })),
  });
}

function useParameters(parameters, from) {
  const lacking = fillForm(parameters);
  byId('alert').textContent = lacking.length
    ? `The server has no LoRA file ${lacking.join(', ')}; the rest is in the form.` : '';
  news(`The form has the parameters of ${from}`);
  form.prompt.focus();
}

function keep({ read, ...video }) {
  addKept({ ...video, load: async () => {
    try {
      deliver(await read());
      return true;
    } catch (error) {
      fail(error);
      return false;
    }
  } });
}

const hooks = { deliver, keep, news, refuse, fail };

/* ---- generating -------------------------------------------------------------------------- */

async function send() {
  byId('alert').textContent = '';
  markField('');
  const { needs } = modelNow();
  if (needs.includes('image') && !startBlob()) {
    fail(new Error(`${form.model.value} needs an image to start from.`));
    byId('start-file').focus();
    return;
  }
  const ask = await readForm();
  if (needs.includes('mask_image') && !ask.files.mask) {
    fail(new Error(`${form.model.value} needs a mask: draw over what is to be generated.`));
    byId('mask').focus();
    return;
  }
  if (needs.includes('last_image') && !ask.files.last_image) {
    fail(new Error(`${form.model.value} needs the image that the video ends with.`));
    byId('last-file').focus();
    return;
  }
  run(ask, hooks);
}

function generate() {
  send().catch(fail);
}

/* ---- files ------------------------------------------------------------------------------- */

async function useStart(file) {
  if (!takesImage()) {
    fail(new Error(`${form.model.value} starts from no image.`));
    return;
  }
  try {
    await setStart(file);
    byId('alert').textContent = '';
    news('The image to start from is there');
  } catch (error) {
    fail(error);
  }
}

async function readParameters(file) {
  const parameters = await parametersOf(new Uint8Array(await file.arrayBuffer()));
  if (parameters)
    useParameters(parameters, file.name || 'the file');
  else
    fail(new Error(`${file.name || 'The file'} is no PNG file with parameters.`));
}

function onDrop(event) {
  const file = event.dataTransfer.files[0];
  byId('start').classList.remove('over');
  if (!event.dataTransfer.types.includes('Files'))
    return;                     /* a text that is dropped into a field                         */
  event.preventDefault();
  if (file && byId('start').contains(event.target))
    useStart(file);
  else if (file)
    readParameters(file);
}

function onDrag(event) {
  if (!event.dataTransfer.types.includes('Files'))
    return;
  event.preventDefault();
  byId('start').classList.toggle('over', byId('start').contains(event.target));
}

function onDragLeave(event) {
  if (!event.relatedTarget)     /* out of the window                                           */
    byId('start').classList.remove('over');
}

function onPaste(event) {
  const file = [...event.clipboardData.files].find((f) => f.type.startsWith('image/'));
  if (!file)
    return;
  event.preventDefault();
  useStart(file);
}

function beginFiles() {
  const picked = (id, use) => byId(id).addEventListener('change', (event) => {
    if (event.target.files[0])
      use(event.target.files[0]);
  });
  picked('start-file', useStart);
  picked('read-file', (file) => {
    readParameters(file);
    byId('read-file').value = '';
  });
  byId('read').addEventListener('click', () => byId('read-file').click());
  document.addEventListener('drop', onDrop);
  document.addEventListener('dragover', onDrag);
  document.addEventListener('dragleave', onDragLeave);
  document.addEventListener('paste', onPaste);
}

/* ---- the beginning ----------------------------------------------------------------------- */

async function showServer() {
  const health = await getJson('health');
  const models = (await getJson('v1/models')).data;
  byId('server').textContent = `${health.version}, ${models.length} ` +
    `model${models.length === 1 ? '' : 's'}`;
  setModels(models);
  setSamplers((await getJson('sdapi/v1/samplers')).map((s) => s.name));
  setLoras((await getJson('sdapi/v1/loras')).map((l) => l.name));
  if (models.some((m) => m.makes === 'video'))
    await resumeVideos(hooks);
}

function begin() {
  beginForm();
  beginMask((message) => fail(new Error(message)));
  beginFiles();
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    generate();
  });
  form.prompt.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey))
      form.requestSubmit();
  });
  showServer().catch(fail);
}

begin();
