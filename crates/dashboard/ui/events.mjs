// The event list: selects all rows of a page and shows how many are selected.

const form = document.querySelector('form[data-choose]');
if (form instanceof HTMLFormElement) {
  /** @returns {HTMLInputElement[]} */
  const boxes = () => [...form.querySelectorAll('input[name="event"]')].filter((box) => box instanceof HTMLInputElement);
  /** @returns {HTMLInputElement | null} */
  const findCheckAll = () => form.querySelector('input[data-choose-all]');
  const submit = form.querySelector('[data-choose-go]');
  /** @type {HTMLElement | null} */
  const count = form.querySelector('[data-choose-count]');

  const update = () => {
    const selected = boxes().filter((box) => box.checked).length;
    if (submit instanceof HTMLButtonElement) submit.disabled = selected === 0;
    if (count) count.textContent = selected ? (count.dataset.text ?? '{}').replace('{}', String(selected)) : '';
    const checkAll = findCheckAll();
    if (!checkAll) return;
    checkAll.hidden = false;
    checkAll.checked = selected > 0 && selected === boxes().length;
    checkAll.indeterminate = selected > 0 && !checkAll.checked;
  };
  form.addEventListener('change', (event) => {
    const checkAll = findCheckAll();
    if (checkAll && event.target === checkAll) for (const box of boxes()) box.checked = checkAll.checked;
    update();
  });
  // A refresh replaces the rows.
  document.addEventListener('surehook:refreshed', update);
  update();
}
