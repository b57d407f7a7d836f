// The list of events: choosing all rows of a page, and saying how many are chosen.

const form = document.querySelector('form[data-choose]');
if (form instanceof HTMLFormElement) {
  /** @returns {HTMLInputElement[]} */
  const boxes = () => [...form.querySelectorAll('input[name="event"]')].filter((box) => box instanceof HTMLInputElement);
  const all = form.querySelector('[data-choose-all]');
  const go = form.querySelector('[data-choose-go]');
  const count = form.querySelector('[data-choose-count]');

  const update = () => {
    const chosen = boxes().filter((box) => box.checked).length;
    if (go instanceof HTMLButtonElement) go.disabled = chosen === 0;
    if (count) count.textContent = chosen ? `(${chosen})` : '';
    if (all instanceof HTMLInputElement) {
      all.checked = chosen > 0 && chosen === boxes().length;
      all.indeterminate = chosen > 0 && !all.checked;
    }
  };
  if (all instanceof HTMLInputElement) all.hidden = false;
  form.addEventListener('change', (event) => {
    if (event.target === all && all instanceof HTMLInputElement) for (const box of boxes()) box.checked = all.checked;
    update();
  });
  update();
}
