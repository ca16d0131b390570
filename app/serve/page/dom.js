/* dom.js - elements: found, made, and the small things that several modules show */

export const byId = (id) => document.getElementById(id);

/* An element with properties and children; texts are never read as HTML. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/* A drawing of index.html's symbols. */
export function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

/* A button with a drawing. `label` is what screen readers and the mouse's hint tell. */
export function iconButton(name, label, action, properties = {}) {
  const button = make('button', { type: 'button', className: 'icon-button', ariaLabel: label,
                                  title: label, ...properties }, icon(name));
  button.addEventListener('click', action);
  return button;
}

/* What screen readers hear of. */
export function news(text) {
  byId('news').textContent = text;
}

/* A sentence above the results, until the next request or until it is closed; '': none. */
export function alertUser(text) {
  byId('alert-text').textContent = text;
  byId('alert').hidden = !text;
}

export function fail(error) {
  alertUser(error.message || String(error));
}

export const sleep = (ms) => new Promise((resolve) => {
  setTimeout(resolve, ms);
});

/* Also where the page came by plain HTTP from another host, and browsers have no clipboard. */
export async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make('textarea', { value: text, className: 'unseen' });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  news(`${what} copied`);
}
