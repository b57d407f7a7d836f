// What every page does in the browser. Pages work without it; it adds comfort.
// Payloads are hostile: text goes in by `textContent`, never as HTML.

const root = document.documentElement;
const zone = root.dataset.zone || undefined;

/** Says something to screen readers. @param {string} text */
export function say(text) {
  const place = document.getElementById('say');
  if (place) place.textContent = text;
}

/** `<local-time datetime="…">`: a time in the zone of the user; the exact one in UTC on hover. */
class LocalTime extends HTMLElement {
  connectedCallback() {
    const given = this.getAttribute('datetime');
    const at = new Date(given ?? '');
    if (Number.isNaN(at.getTime())) return;
    const sameDay = new Date().toDateString() === at.toDateString();
    /** @type {Intl.DateTimeFormatOptions} */
    const form = { hour: '2-digit', minute: '2-digit', second: '2-digit', timeZone: zone };
    if (!sameDay || this.hasAttribute('whole')) Object.assign(form, { year: 'numeric', month: '2-digit', day: '2-digit' });
    const text = new Intl.DateTimeFormat(root.lang, form).format(at);
    const time = document.createElement('time');
    time.dateTime = given ?? '';
    time.title = given ?? '';
    time.textContent = text;
    this.replaceChildren(time);
  }
}
customElements.define('local-time', LocalTime);

/** Copies a text. Over plain HTTP browsers have no clipboard for pages: then the old way is tried, and
 * if that fails the text is selected for the keys of the user, where it is to be seen. Says what became
 * of it. @param {string} text @param {Element | null} [from] @returns {Promise<boolean>} */
export async function copy(text, from = null) {
  const words = document.getElementById('say')?.dataset;
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    done = copyBySelection(text);
  }
  if (!done && from) select(from);
  say((done ? words?.copied : words?.notCopied) ?? '');
  return done;
}

/** @param {string} text */
function copyBySelection(text) {
  const held = document.activeElement;
  const field = document.createElement('textarea');
  field.className = 'vh';
  field.value = text;
  // What is behind an open dialog cannot be selected.
  (document.querySelector('dialog[open]') ?? document.body).append(field);
  field.select();
  let done = false;
  try { done = document.execCommand('copy'); } catch { /* it stays false */ }
  field.remove();
  if (held instanceof HTMLElement) held.focus({ preventScroll: true });
  return done;
}

/** @param {Element} from */
function select(from) {
  if (from instanceof HTMLInputElement || from instanceof HTMLTextAreaElement) return from.select();
  getSelection()?.selectAllChildren(from);
}

/** `<button data-copy="text">` or `data-copy-from="selector"`: copies, and says so. */
document.addEventListener('click', async (event) => {
  const button = event.target instanceof Element ? event.target.closest('[data-copy],[data-copy-from]') : null;
  if (!(button instanceof HTMLElement)) return;
  const from = button.dataset.copyFrom ? document.querySelector(button.dataset.copyFrom) : null;
  const text = from ? (from instanceof HTMLInputElement || from instanceof HTMLTextAreaElement ? from.value : from.textContent ?? '') : button.dataset.copy ?? '';
  const done = await copy(text, from);
  const said = document.getElementById('say')?.textContent ?? '';
  const before = button.textContent;
  if (done) button.dataset.done = '';
  const label = button.querySelector('span') ?? button;
  const was = label.textContent;
  label.textContent = said;
  setTimeout(() => { label.textContent = was ?? before; delete button.dataset.done; }, done ? 1200 : 4000);
});

/** `<select data-submit>` sends its form when it changes. */
document.addEventListener('change', (event) => {
  if (event.target instanceof HTMLSelectElement && event.target.hasAttribute('data-submit')) event.target.form?.requestSubmit();
});

/** `<button data-open="#dialog">` opens a dialog; `data-close` closes the one around it. */
document.addEventListener('click', (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const opener = target?.closest('[data-open]');
  if (opener instanceof HTMLElement) {
    const dialog = document.querySelector(opener.dataset.open ?? '');
    if (dialog instanceof HTMLDialogElement) { event.preventDefault(); dialog.showModal(); }
  }
  if (target?.closest('[data-close]')) target.closest('dialog')?.close();
});
