/* errors.js - error messages next to the fields of the form */
import { byId, make } from './dom.js';

const form = byId('form');

/* Names of request fields that differ from those of the form. */
const names = {
  true_cfg_scale: 'guidance_scale', cfg_scale: 'guidance_scale', guidance: 'guidance_scale',
  steps: 'num_inference_steps', num_images_per_prompt: 'n', size: 'width', frames: 'num_frames',
  seconds: 'num_frames', sampler: 'scheduler', input_reference: 'image', 'image[]': 'image',
  mask_image: 'mask', timesteps: 'num_inference_steps', sigmas: 'num_inference_steps',
};

const fieldOf = (given) => {
  const name = names[given] || given;
  const field = form.elements[name === 'mask' && byId('mask-row').hidden ? 'mask_video' : name];
  return field instanceof HTMLElement ? field : null;
};

/* Returns the form field of an error: the one in its `param`, or the first one that its message
 * names. */
export function fieldOfError(error) {
  const named = error.param && fieldOf(error.param);
  if (named)
    return named;
  for (const [word] of (error.message || '').matchAll(/[a-z_]+/g))
    if (names[word] || form.elements[word]?.name === word) {
      const field = fieldOf(word);
      if (field && word !== 'model' && word !== 'prompt')
        return field;
    }
  return null;
}

/* Returns the place of a field's message: below the field, or below its row. */
const boxOf = (field) => field.closest('.pair') || field.closest('.field');

export function clearErrors(field) {
  const box = field ? boxOf(field) : form;
  for (const element of box?.querySelectorAll('.field-error') || [])
    element.remove();
  for (const element of box?.querySelectorAll('[aria-invalid]') || []) {
    element.removeAttribute('aria-invalid');
    element.removeAttribute('aria-describedby');
  }
}

/* Shows the message at the field and scrolls to it. */
export function showError(field, text) {
  const box = boxOf(field);
  const id = `error-${field.name}`;
  clearErrors(field);
  field.setAttribute('aria-invalid', 'true');
  field.setAttribute('aria-describedby', id);
  box.append(make('p', { id, className: 'field-error', role: 'alert', textContent:
    text[0].toUpperCase() + text.slice(1) }));
  const details = field.closest('details');
  if (details)
    details.open = true;
  (field.type === 'hidden' ? box.querySelector('button') : field).focus({ preventScroll: true });
  box.scrollIntoView({ block: 'nearest' });
}
