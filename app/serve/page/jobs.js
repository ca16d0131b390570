/* jobs.js - requests that run: what the server tells of them, and how they are cancelled */
import { bytesOf, events, postJson, request, getJson } from './api.js';
import { make } from './gallery.js';
import { ownParameters, parametersOf, readJson } from './png.js';

const byId = (id) => document.getElementById(id);
const pollMs = 500;             /* between two looks at a video                                */
let count = 0;

/* ---- what is shown of one ---------------------------------------------------------------- */

const stages = { open: 'Loading the model', text: 'Reading the prompt', denoise: 'Denoising',
                 decode: 'Decoding' };

function minutes(seconds) {
  const s = Math.ceil(seconds);
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}`;
}

class Card {
  constructor(title, news) {
    this.number = ++count;
    this.news = news;
    this.bar = make('progress', { max: 1, value: 0, ariaLabel: `Progress of request ${this.number}`
    });
    this.state = make('p', { className: 'state', textContent: 'Sent' });
    this.preview = make('img', { hidden: true, alt: `Preview of request ${this.number}` });
    this.button = make('button', { type: 'button', textContent: 'Cancel' },
      make('span', { className: 'unseen', textContent: ` request ${this.number}` }));
    this.item = make('li', {}, make('p', { className: 'title', textContent: title }), this.state,
      this.bar, make('p', { className: 'actions' }, this.button), this.preview);
    byId('jobs').append(this.item);
    byId('jobs-none').hidden = true;
  }

  /* The words, and to screen readers, when another stage begins. */
  say(text, stage) {
    this.state.textContent = text;
    if (stage !== undefined && stage !== this.stage)
      this.news(`Request ${this.number}: ${text}`);
    this.stage = stage ?? this.stage;
  }

  wait(before) {
    this.say(before === 0 ? 'Waiting to begin' : before === 1 ? 'Waiting: 1 request is before it'
      : `Waiting: ${before} requests are before it`, `wait ${before}`);
  }

  /* `part` of all work, from 0 to 1. */
  advance(part) {
    const now = performance.now();
    this.bar.value = part;
    if (part > 0 && !this.from)
      this.from = { part, at: now };
    const done = part - (this.from?.part ?? 0);
    return done > 0 ? `, ${minutes((now - this.from.at) / 1000 / done * (1 - part))} left` : '';
  }

  show(blob) {
    if (this.preview.src)
      URL.revokeObjectURL(this.preview.src);
    this.preview.src = URL.createObjectURL(blob);
    this.preview.hidden = false;
  }

  remove() {
    const focused = this.item.contains(document.activeElement);
    if (this.preview.src)
      URL.revokeObjectURL(this.preview.src);
    this.item.remove();
    byId('jobs-none').hidden = byId('jobs').childElementCount > 0;
    if (focused)
      byId('generate').focus();
  }

  fail(message) {
    this.state.role = 'alert';
    this.state.className = 'error';
    this.state.textContent = message;
    this.bar.remove();
    this.preview.remove();
    this.button.firstChild.data = 'Dismiss';
    this.button.onclick = () => this.remove();
  }
}

/* ---- streams at once: a browser has six connections to a server ------------------------- */

let free = 4;
const waiting = [];

function freeStream() {
  const next = waiting.shift();
  if (next)
    next();
  else
    free++;
}

/* Waits until this page may have another stream. */
async function takeStream(card, signal) {
  if (free > 0) {
    free--;
    return;
  }
  card.say('Waiting for another request of this page', 'page');
  await new Promise((resolve, reject) => {
    waiting.push(resolve);
    signal.addEventListener('abort', () => {
      if (waiting.includes(resolve))
        waiting.splice(waiting.indexOf(resolve), 1);
      reject(signal.reason);
    });
  });
}

/* ---- images: a stream -------------------------------------------------------------------- */

function formData(fields, files) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields))
    if (name === 'lora')
      value.forEach((l) => form.append('lora', `${l.name}:${l.scale}`));
    else
      form.append(name, String(value));
  for (const [name, blobs] of Object.entries(files))
    for (const blob of [blobs].flat())
      form.append(name, blob, `file.${blob.type.split('/')[1] || 'png'}`);
  return form;
}

function sendImages(ask, signal) {
  const fields = { ...ask.fields, stream: true, progress: true };
  if (!ask.files.image)
    return postJson('v1/images/generations', fields, { signal });
  return request('v1/images/edits', { method: 'POST', signal, body: formData(fields, ask.files) });
}

function showProgress(card, event) {
  if (event.status === 'queued') {
    card.wait(event.queue_position);
    return;
  }
  const images = Math.max(1, event.images);
  const part = event.steps ? (Math.max(0, event.image - 1) + event.step / event.steps) / images : 0;
  const left = card.advance(part);
  const of = images > 1 ? `, image ${event.image} of ${images}` : '';
  card.say(event.stage === 'denoise' && event.step > 0
    ? `Step ${event.step} of ${event.steps}${of}${left}`
    : `${stages[event.stage] || 'Starting'}${of && event.image > 0 ? of : ''}`, event.stage);
}

async function resultOf(base64, format) {
  const bytes = bytesOf(base64);
  const blob = new Blob([bytes], { type: `image/${format || 'png'}` });
  return { blob, parameters: await parametersOf(bytes) || { loras: [] } };
}

async function readStream(ask, card, signal, deliver) {
  const response = await sendImages(ask, signal);
  let images = 0;
  for await (const event of events(response)) {
    const kind = event.type.split('.')[1];
    if (event.type === 'error')
      throw new Error(event.error.message);
    else if (kind === 'progress')
      showProgress(card, event);
    else if (kind === 'partial_image')
      card.show(new Blob([bytesOf(event.b64_json)], { type: `image/${event.output_format}` }));
    else if (kind === 'completed' && ++images)
      deliver(await resultOf(event.b64_json, event.output_format));
  }
  if (!images)
    throw new Error('The server ended the stream without an image.');
  return images === 1 ? 'the image is there' : `${images} images are there`;
}

async function runImages(ask, card, signal, deliver) {
  await takeStream(card, signal);
  try {
    return await readStream(ask, card, signal, deliver);
  } finally {
    freeStream();
  }
}

/* ---- videos: made in the background ------------------------------------------------------ */

async function sendVideo(ask, signal) {
  if (!ask.files.input_reference)
    return (await postJson('v1/videos', ask.fields, { signal })).json();
  const body = formData(ask.fields, ask.files);
  return (await request('v1/videos', { method: 'POST', signal, body })).json();
}

/* The text itself is read, so that long seeds stay what they are. */
async function lookAt(id) {
  return readJson(await (await request(`v1/videos/${id}`)).text());
}

const sleep = (ms) => new Promise((resolve) => {
  setTimeout(resolve, ms);
});

async function readVariant(id, variant) {
  return (await request(`v1/videos/${id}/content?variant=${variant}`)).blob();
}

async function readVideo(video) {
  const blob = await (await request(`v1/videos/${video.id}/content`)).blob();
  const parameters = ownParameters(video.parameters || { prompt: video.prompt });
  return { blob, parameters };
}

async function watchVideo(id, card, deliver) {
  for (let video, shown = 0; ; await sleep(pollMs)) {
    video = await lookAt(id);
    if (video.previews > shown && video.status === 'in_progress') {
      shown = video.previews;
      card.show(await readVariant(id, 'preview'));
    }
    if (video.status === 'completed') {
      deliver(await readVideo(video));
      return 'the video is there';
    }
    if (video.status === 'failed')
      throw new Error(video.error.message);
    if (video.status === 'cancelled')
      throw new DOMException('cancelled', 'AbortError');
    if (video.status === 'queued')
      card.wait(video.queue_position);
    else
      card.say(`${video.progress} %${card.advance(video.progress / 100)}`, video.status);
  }
}

async function cancelVideo(id) {
  await request(`v1/videos/${id}/cancel`, { method: 'POST' });
}

/* ---- both -------------------------------------------------------------------------------- */

async function follow(card, hooks, work) {
  try {
    hooks.news(`Request ${card.number}: ${await work()}`);
    card.remove();
  } catch (error) {
    if (error.name === 'AbortError') {
      card.remove();
      hooks.news(`Request ${card.number} is cancelled`);
    } else {
      card.fail(error.message);
      hooks.refuse(error);
    }
  }
}

/* Runs what readForm has returned. hooks: deliver({blob, parameters}), news(text),
 * refuse(error) of the request, fail(error) of anything else, keep of resumeVideos. */
export function run(ask, hooks) {
  const card = new Card(ask.fields.prompt, hooks.news);
  const abort = new AbortController();
  /* The server cancels what nobody reads any more. */
  card.button.onclick = () => abort.abort();
  if (!ask.video)
    return follow(card, hooks, () => runImages(ask, card, abort.signal, hooks.deliver));
  return follow(card, hooks, async () => {
    const { id } = await sendVideo(ask, abort.signal);
    return watch(id, card, hooks);
  });
}

function watch(id, card, hooks) {
  card.button.onclick = () => cancelVideo(id).catch(hooks.fail);
  return watchVideo(id, card, hooks.deliver);
}

/* Videos that the server still has, from another session of the page. */
export async function resumeVideos(hooks) {
  const { data } = await getJson('v1/videos?limit=20&order=asc');
  for (const video of data)
    if (video.status === 'completed')
      hooks.keep({ thumbnail: await readVariant(video.id, 'thumbnail'),
                   prompt: video.prompt || 'A video',
                   read: async () => readVideo(await lookAt(video.id)) });
    else if (video.status === 'queued' || video.status === 'in_progress') {
      const card = new Card(video.prompt || 'A video', hooks.news);
      follow(card, hooks, () => watch(video.id, card, hooks));
    }
}
