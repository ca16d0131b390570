/* size.js - width and height: presets by ratio with the model's default area, or the size of the
 * start image */
import { byId, icon, make } from './dom.js';
import { shapeBlob } from './images.js';

const ratios = [[1, 1], [4, 3], [3, 2], [16, 9], [2, 3], [9, 16]];
const form = byId('form');
let unit = 16;                  /* sides are multiples of it                                   */
let area = 1024 * 1024;
let standard = ['', ''];      /* of the model                                                */

function sizeOf([w, h]) {
  const side = (part) => Math.max(unit, Math.round(Math.sqrt(area * part) / unit) * unit);
  return [side(w / h), side(h / w)];
}

function setSize(width, height) {
  [form.width.value, form.height.value] = [width, height];
  form.width.dispatchEvent(new Event('change', { bubbles: true }));
}

/* Draws the shape of a preset. */
function shape([w, h]) {
  const box = make('span', { className: 'shape' });
  box.style.aspectRatio = `${w} / ${h}`;
  box.style[w >= h ? 'width' : 'height'] = '1rem';
  return box;
}

function preset(ratio) {
  const [w, h] = sizeOf(ratio);
  const text = `${ratio[0]}:${ratio[1]}`;
  const button = make('button', { type: 'button', className: 'preset', title: `${w} x ${h}` },
                      shape(ratio), make('span', { textContent: text }));
  button.ariaPressed = String(Number(form.width.value) === w && Number(form.height.value) === h);
  button.addEventListener('click', () => setSize(w, h));
  return button;
}

/* An empty size means that of the start image. */
function asImage() {
  const button = make('button', { type: 'button', className: 'preset', title:
    'The size of the given image' }, icon('image'), make('span', { textContent: 'As the image' }));
  button.ariaPressed = String(!form.width.value && !form.height.value);
  button.addEventListener('click', () => setSize('', ''));
  return button;
}

/* Shows the presets: the model's default size, ratios, and the size of the start image. */
export function showSize({ defaults, multiple, takes }) {
  const given = shapeBlob({ takes });
  unit = multiple || 16;
  standard = [defaults.width ?? '', defaults.height ?? ''];
  area = (defaults.width || 1024) * (defaults.height || 1024);
  const focused = [...byId('presets').children].indexOf(document.activeElement);
  byId('presets').replaceChildren(...ratios.map(preset), ...given ? [asImage()] : []);
  byId('presets').children[focused]?.focus();
  for (const side of ['width', 'height']) {
    form[side].step = form[side].min = unit;
    form[side].placeholder = given ? 'auto' : standard[side === 'width' ? 0 : 1];
  }
}

/* Sets the size of a new start image; without one, the model's default. */
export function followImage(given) {
  if (given)
    setSize('', '');
  else if (!form.width.value && !form.height.value)
    setSize(...standard);
}

export function beginSize() {
  byId('swap').addEventListener('click', () => setSize(form.height.value, form.width.value));
}
