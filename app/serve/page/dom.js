/* dom.js - finds and creates elements; small widgets that several modules use */

export const byId = (id) => document.getElementById(id);

/* Creates an element with properties and children. Texts are never parsed as HTML. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/* Creates an icon from the symbols in index.html. */
export function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

/* Creates a button with an icon. label: for screen readers and the tooltip. */
export function iconButton(name, label, action, properties = {}) {
  const button = make('button', { type: 'button', className: 'icon-button', ariaLabel: label,
                                  title: label, ...properties }, icon(name));
  button.addEventListener('click', action);
  return button;
}

/* Announces a text to screen readers. */
export function news(text) {
  byId('news').textContent = text;
}

/* Shows a message above the results, until the next request or until it is closed; '': none. */
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

/* Copies a text. On plain HTTP from another host the browser has no clipboard API. */
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
