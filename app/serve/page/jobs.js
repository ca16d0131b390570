/* jobs.js - sends requests, shows their progress, cancels and deletes them
 *
 * The server keeps requests as jobs that run without the page, so a reload finds them again. */
import { getJson, postJson, request, ServerError } from './api.js';
import { alertUser, byId, news, sleep } from './dom.js';
import { addJob, failJob, hasJob, removeJob, showJob } from './gallery.js';

const pollMs = 400;             /* between two looks at what runs                              */
const page = 24;                /* jobs that are shown at first, and by every "older"          */
const active = new Map();       /* jobs that have not ended: id -> {job, marks, told}          */
const ended = ['completed', 'failed', 'cancelled'];
let polling = false;
let hooks = {};
let listed = [];                /* ids that the server has listed, the newest first            */

/* ---- progress ---------------------------------------------------------------------------- */

const stages = { open: 'Loading the model', load: 'Loading the model', text: 'Reading the prompt',
                 denoise: 'Denoising', decode: 'Decoding' };

export function minutes(seconds) {
  const s = Math.ceil(seconds);
  const rest = String(s % 60).padStart(2, '0');
  return s < 3600 ? `${Math.floor(s / 60)}:${rest}`
    : `${Math.floor(s / 3600)}:${String(Math.floor(s / 60) % 60).padStart(2, '0')}:${rest}`;
}

/* Returns the steps per second over the last ten polls; 0: unknown yet. */
function rateOf(entry) {
  const { job, marks } = entry;
  const done = Math.max(0, job.image - 1) * job.steps + job.step;
  const now = performance.now() / 1000;
  if (!marks.length || done > marks.at(-1).done)
    marks.push({ done, now });
  entry.marks = marks.slice(-10);
  const [first] = entry.marks;
  return done > first.done && marks.at(-1).now > first.now
    ? (done - first.done) / (marks.at(-1).now - first.now) : 0;
}

/* Formats the speed as other programs do. */
function speed(rate) {
  return rate < 1 ? `${(1 / rate).toFixed(2)} s/it` : `${rate.toFixed(rate < 10 ? 2 : 1)} it/s`;
}

function queueWords(before) {
  return before > 0 ? `Waiting: ${before} ahead in the queue` : 'Waiting: next in the queue';
}

/* "Step 3 of 20", "2.50 it/s", "0:07 left" */
function progressWords(entry) {
  const { job } = entry;
  if (job.status === 'queued')
    return [queueWords(job.queue_position)];
  if (job.status === 'cancelling')
    return ['Cancelling'];
  const rate = rateOf(entry);
  const of = job.images > 1 && job.image > 0 ? [`image ${job.image} of ${job.images}`] : [];
  const left = rate > 0 ? (job.images * job.steps - Math.max(0, job.image - 1) * job.steps -
                           job.step) / rate : job.predicted_seconds;
  if (job.stage !== 'denoise' || !job.step)
    return [stages[job.stage] || 'Starting', ...of];
  return [`Step ${job.step} of ${job.steps}`, ...of, ...rate > 0 ? [speed(rate)] : [],
          ...left > 0 ? [`${minutes(left)} left`] : []];
}

/* Announces a new stage, and every quarter of the progress. */
function tell(entry, words) {
  const { job } = entry;
  const now = job.status === 'queued' ? words[0] : `${job.stage} ${Math.floor(job.progress / 25)}`;
  if (now !== entry.told)
    news(job.status === 'in_progress' && job.progress >= 25 ? `${job.progress} %` : words[0]);
  entry.told = now;
}

/* Shows the progress in the window's title and next to the button. */
function showStatus() {
  const jobs = [...active.values()].map((e) => e.job);
  const running = jobs.filter((j) => j.status !== 'queued');
  const percent = Math.max(...running.map((j) => j.progress));
  const waiting = jobs.length - running.length;
  document.title = running.length ? `${percent} % - xdit` : waiting ? 'Waiting - xdit' : 'xdit';
  byId('foot').style.setProperty('--part', `${running.length ? percent : 0}%`);
  byId('foot').classList.toggle('running', jobs.length > 0);
  if (!jobs.length && byId('status').dataset.job)
    byId('status').replaceChildren(...hooks.hint);
  else if (jobs.length)
    byId('status').textContent = [...running.length ? [`${percent} %`] : [],
                                  ...waiting ? [`${waiting} waiting`] : []].join(', ');
  byId('status').dataset.job = jobs.length ? 'yes' : '';
}

/* ---- polling ----------------------------------------------------------------------------- */

function finish(entry) {
  const { job } = entry;
  active.delete(job.id);
  if (job.status === 'completed') {
    news(job.results.length === 1 ? `The ${job.kind} is ready`
      : `${job.results.length} images are ready`);
    hooks.made(job.results[0]);
  } else if (job.status === 'cancelled') {
    news('Cancelled');
  } else {
    const error = Object.assign(new Error(job.error.message), { status: job.error.code });
    if (hooks.showAtField(error))
      forget(job.id).catch(() => {});           /* said once is enough                         */
  }
}

async function look(entry) {
  try {
    entry.job = await getJson(`v1/jobs/${entry.job.id}`);
  } catch (error) {
    if (!(error instanceof ServerError) || error.status !== 404)
      throw error;
    active.delete(entry.job.id);
    failJob(entry.job, 'The server has forgotten this request: it may have been started again.');
    return;
  }
  const words = progressWords(entry);
  tell(entry, words);
  showJob(entry.job, words);
  if (ended.includes(entry.job.status))
    finish(entry);
}

/* Polls an unreachable server again, with growing intervals. */
async function poll() {
  let pause = pollMs;
  polling = true;
  while (active.size) {
    try {
      await Promise.all([...active.values()].map(look));
      if (pause > pollMs)
        alertUser('');
      pause = pollMs;
    } catch (error) {
      pause = Math.min(5000, 2 * pause);
      alertUser(`${error.message} Trying again.`);
    }
    showStatus();
    await sleep(pause);
  }
  polling = false;
}

/* Shows the state of a job. mine: sent by this page, so its end is announced. */
function track(job, older, mine = false) {
  if (job.status === 'cancelled' && !job.results.length)
    return;
  addJob(job, older);
  const entry = { job, marks: [], told: '' };
  if (ended.includes(job.status)) {
    showJob(job, []);
    if (mine)
      finish(entry);
    return;
  }
  active.set(job.id, entry);
  showJob(job, progressWords(entry));
  showStatus();
  if (!polling)
    poll();
}

/* ---- requests to the server -------------------------------------------------------------- */

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

/* Sends the request that readForm has returned. */
export async function send({ fields, files, video }) {
  const path = video ? 'v1/videos' : files.image ? 'v1/images/edits' : 'v1/images/generations';
  const all = video ? fields : { ...fields, wait: false };
  const response = Object.keys(files).length
    ? await request(path, { method: 'POST', body: formData(all, files) })
    : await postJson(path, all);
  const { id } = await response.json();
  track(await getJson(`v1/jobs/${id}`), false, true);
}

export async function cancel(id) {
  await request(`v1/jobs/${id}/cancel`, { method: 'POST' });
}

/* Deletes a job, also one that the server does not have any more. */
export async function forget(id) {
  active.delete(id);
  listed = listed.filter((other) => other !== id);
  try {
    await request(`v1/jobs/${id}`, { method: 'DELETE' });
  } catch (error) {
    if (error.status !== 404)
      throw error;
  }
  removeJob(id);
  showStatus();
}

/* Loads the next page of earlier jobs. */
export async function loadOlder() {
  const { data, has_more: more } = await getJson(`v1/jobs?limit=${page}` +
                                                  `&after=${listed.at(-1) || ''}`);
  for (const job of data.filter((j) => !ended.includes(j.status)).reverse())
    track(job, false);
  for (const job of data.filter((j) => ended.includes(j.status)))
    track(job, true);
  listed.push(...data.map((job) => job.id));
  byId('older').hidden = !more;
}

/* Loads requests of other windows and clients when this window becomes visible. */
async function loadNew() {
  if (document.hidden)
    return;
  const { data } = await getJson(`v1/jobs?limit=${page}`);
  const known = data.findIndex((job) => hasJob(job.id));
  for (const job of data.slice(0, known < 0 ? data.length : known).reverse())
    track(job, false);
}

/* hooks: made(result) is called for a successful request; showAtField(error) for a failed one, and
 * returns true if it shows the error; hint: text next to the button while nothing runs. */
export function beginJobs(given) {
  hooks = given;
  document.addEventListener('visibilitychange', () => loadNew().catch(() => {}));
  byId('older').addEventListener('click', () => loadOlder().catch((e) => alertUser(e.message)));
}
