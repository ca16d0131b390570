/* api.js - requests to the server: the key that it may ask for, its sentences, streams of events */

const storedKey = 'xdit-key';
let asking = null;      /* the promise of a key that the visitor is asked for */

/* A failure that the server has put into a sentence. */
export class ServerError extends Error {
  constructor(message, status, param) {
    super(message);
    this.status = status;
    this.param = param || '';
  }
}

/* Shows the dialog for a key; true: there is a new one. */
function askForKey(why) {
  const dialog = document.getElementById('key-dialog');
  const form = document.getElementById('key-form');
  const field = document.getElementById('key');
  document.getElementById('key-why').textContent = why;
  return new Promise((resolve) => {
    const close = (given) => {
      if (given)
        sessionStorage.setItem(storedKey, field.value.trim());
      field.value = '';
      asking = null;
      form.onsubmit = dialog.oncancel = null;
      dialog.close();
      resolve(given);
    };
    form.onsubmit = (event) => {
      event.preventDefault();
      close(true);
    };
    document.getElementById('key-cancel').onclick = () => close(false);
    dialog.oncancel = (event) => {
      event.preventDefault();
      close(false);
    };
    dialog.showModal();
  });
}

async function errorOf(response) {
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    /* not the server itself: a proxy before it */
  }
  const text = error.message || `The server answered ${response.status} ${response.statusText}`;
  return new ServerError(text, response.status, error.param);
}

/* fetch with the key; asks for one where the server does. Without credentials of the browser, which
 * would show a dialog of its own for a password. */
export async function request(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(storedKey);
    const headers = { ...options.headers };
    if (key)
      headers.Authorization = `Bearer ${key}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers, credentials: 'omit' });
    } catch (error) {
      if (error.name === 'AbortError')
        throw error;
      throw new ServerError('The server cannot be reached.', 0);
    }
    if (response.ok)
      return response;
    const error = await errorOf(response);
    if (response.status !== 401)
      throw error;
    if (sessionStorage.getItem(storedKey) !== key)
      continue;         /* another request has asked meanwhile */
    asking ||= askForKey(error.message);
    if (!await asking)
      throw error;
  }
}

export async function getJson(path) {
  return (await request(path)).json();
}

export function postJson(path, fields, options = {}) {
  return request(path, { ...options, method: 'POST', body: JSON.stringify(fields),
                         headers: { 'Content-Type': 'application/json' } });
}

function dataOf(event) {
  return event.split('\n').filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart()).join('\n');
}

/* The data of every event of a stream, as JSON. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  let from = 0;         /* where the end of the event may be: images are long */
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw error.name === 'AbortError' ? error
        : new ServerError('The connection to the server broke.', 0);
    });
    if (done)
      return;
    text += value;
    for (let end; (end = text.indexOf('\n\n', from)) >= 0; from = 0) {
      const data = dataOf(text.slice(0, end));
      text = text.slice(end + 2);
      if (data)
        yield JSON.parse(data);
    }
    from = Math.max(0, text.length - 1);
  }
}

/* Bytes of a text in base64. */
export function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++)
    bytes[i] = text.charCodeAt(i);
  return bytes;
}
