// The list of events: choosing all rows of a page, and saying how many are chosen.

const form = document.querySelector('form[data-choose]');
if (form instanceof HTMLFormElement) {
  /** @returns {HTMLInputElement[]} */
  const boxes = () => [...form.querySelectorAll('input[name="event"]')].filter((box) => box instanceof HTMLInputElement);
  /** @returns {HTMLInputElement | null} */
  const all = () => form.querySelector('input[data-choose-all]');
  const go = form.querySelector('[data-choose-go]');
  /** @type {HTMLElement | null} */
  const count = form.querySelector('[data-choose-count]');

  const update = () => {
    const chosen = boxes().filter((box) => box.checked).length;
    if (go instanceof HTMLButtonElement) go.disabled = chosen === 0;
    if (count) count.textContent = chosen ? (count.dataset.text ?? '{}').replace('{}', String(chosen)) : '';
    const every = all();
    if (!every) return;
    every.hidden = false;
    every.checked = chosen > 0 && chosen === boxes().length;
    every.indeterminate = chosen > 0 && !every.checked;
  };
  form.addEventListener('change', (event) => {
    const every = all();
    if (every && event.target === every) for (const box of boxes()) box.checked = every.checked;
    update();
  });
  // The rows are others then.
  document.addEventListener('surehook:refreshed', update);
  update();
}
