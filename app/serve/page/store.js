/* store.js - saves the form (localStorage) and the input images (IndexedDB) across a reload
 *
 * If the browser forbids both, they are kept while the page is open. */

const formKey = 'xdit-form';

export function loadForm() {
  try {
    return JSON.parse(localStorage.getItem(formKey)) || {};
  } catch {
    return {};
  }
}

export function saveForm(state) {
  try {
    localStorage.setItem(formKey, JSON.stringify(state));
  } catch {
    /* full, or forbidden */
  }
}

let opening = null;

function promiseOf(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function openStore() {
  opening ||= new Promise((resolve, reject) => {
    const request = indexedDB.open('xdit', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('images');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opening;
}

/* Stores blobs by slot; `undefined`: none. */
export async function loadImages(place) {
  try {
    const store = (await openStore()).transaction('images').objectStore('images');
    return await promiseOf(store.get(place));
  } catch {
    return undefined;
  }
}

export async function saveImages(place, value) {
  try {
    const store = (await openStore()).transaction('images', 'readwrite').objectStore('images');
    await promiseOf(value === undefined ? store.delete(place) : store.put(value, place));
  } catch {
    /* full, or forbidden */
  }
}
