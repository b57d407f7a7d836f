// Behavior of every page. Pages also work without it.
// Payloads are attacker-controlled: text is set with `textContent`, never as HTML.

const root = document.documentElement;
const zone = root.dataset.zone || undefined;

/** Announces a text to screen readers. @param {string} text */
export function announce(text) {
  const region = document.getElementById('announcer');
  if (region) region.textContent = text;
}

/** `<local-time datetime="…">`: a time in the user's time zone; the exact UTC time on hover. */
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

/** Copies a text and announces the result. The clipboard API is not available over plain HTTP: then
 * `execCommand` is tried, and if that fails the text is selected so that the user can press Ctrl+C.
 * @param {string} text @param {Element | null} [from] @returns {Promise<boolean>} */
export async function copy(text, from = null) {
  const texts = document.getElementById('announcer')?.dataset;
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    done = copyBySelection(text);
  }
  if (!done && from) selectText(from);
  announce((done ? texts?.copied : texts?.notCopied) ?? '');
  return done;
}

/** @param {string} text */
function copyBySelection(text) {
  const focused = document.activeElement;
  const field = document.createElement('textarea');
  field.className = 'vh';
  field.value = text;
  // Elements behind an open dialog cannot be selected.
  (document.querySelector('dialog[open]') ?? document.body).append(field);
  field.select();
  let done = false;
  try { done = document.execCommand('copy'); } catch { /* stays false */ }
  field.remove();
  if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
  return done;
}

/** @param {Element} from */
function selectText(from) {
  if (from instanceof HTMLInputElement || from instanceof HTMLTextAreaElement) return from.select();
  getSelection()?.selectAllChildren(from);
}

/** `<button data-copy="text">` or `data-copy-from="selector"`: copies a text. */
document.addEventListener('click', async (event) => {
  const button = event.target instanceof Element ? event.target.closest('[data-copy],[data-copy-from]') : null;
  if (!(button instanceof HTMLElement)) return;
  const from = button.dataset.copyFrom ? document.querySelector(button.dataset.copyFrom) : null;
  const text = from ? (from instanceof HTMLInputElement || from instanceof HTMLTextAreaElement ? from.value : from.textContent ?? '') : button.dataset.copy ?? '';
  const done = await copy(text, from);
  const result = document.getElementById('announcer')?.textContent ?? '';
  const before = button.textContent;
  if (done) button.dataset.done = '';
  const label = button.querySelector('span') ?? button;
  const was = label.textContent;
  label.textContent = result;
  setTimeout(() => { label.textContent = was ?? before; delete button.dataset.done; }, done ? 1200 : 4000);
});

/** `<select data-submit>` submits its form on change. */
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
