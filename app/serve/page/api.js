/* api.js - requests to the server, API keys, and error messages */

const storedKey = 'xdit-key';
let asking = null;      /* the promise of a key that the visitor is asked for */

/* An error with a message of the server. */
export class ServerError extends Error {
  constructor(message, status, param) {
    super(message);
    this.status = status;
    this.param = param || '';
  }
}

/* Shows the dialog for a key. Resolves to true if the user has entered one. */
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
    /* a reply of a proxy, not of the server */
  }
  const text = error.message || `The server replied with ${response.status} ${response.statusText}`;
  return new ServerError(text, response.status, error.param);
}

/* fetch with the API key; asks the user for one if the server requires it. Credentials are omitted,
 * since the browser would show its own password dialog. */
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

/* Parses JSON of the server. Seeds, which may exceed JavaScript's integers, become texts first. */
export function readJson(text) {
  return JSON.parse(text.replace(/("seed": ?)(\d+)/g, '$1"$2"'));
}

export async function getJson(path) {
  return readJson(await (await request(path)).text());
}

export function postJson(path, fields) {
  return request(path, { method: 'POST', body: JSON.stringify(fields),
                         headers: { 'Content-Type': 'application/json' } });
}
