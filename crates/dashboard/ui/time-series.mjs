// `<time-series data-table="#id">`: draws a table as a chart. The table is the accessible version; the
// drawing is hidden from screen readers. Dragging across the chart selects a time range.

/* global uPlot */

const root = document.documentElement;
const zone = root.dataset.zone || undefined;
const HEIGHT = 190;
const count = new Intl.NumberFormat(root.lang, { notation: 'compact', maximumFractionDigits: 1 });
const exact = new Intl.NumberFormat(root.lang);
const small = new Intl.NumberFormat(root.lang, { maximumFractionDigits: 1 });

/** @param {number} millis */
function formatMillis(millis) {
  if (millis >= 120_000) return `${small.format(millis / 60_000)} min`;
  if (millis >= 1000) return `${small.format(millis / 1000)} s`;
  return `${small.format(millis)} ms`;
}

class TimeSeries extends HTMLElement {
  connectedCallback() {
    if (!globalThis.uPlot) return;
    this.setAttribute('aria-hidden', 'true');
    this.draw();
    this.sizes = new ResizeObserver(() => this.plot?.setSize({ width: this.clientWidth, height: HEIGHT }));
    this.sizes.observe(this);
    this.onRefresh = () => this.refresh();
    this.onTheme = () => this.draw();
    document.addEventListener('surehook:refreshed', this.onRefresh);
    this.scheme = matchMedia('(prefers-color-scheme: dark)');
    this.scheme.addEventListener('change', this.onTheme);
    this.themes = new MutationObserver(this.onTheme);
    this.themes.observe(root, { attributeFilter: ['data-theme'] });
  }

  disconnectedCallback() {
    this.sizes?.disconnect();
    this.themes?.disconnect();
    if (this.onTheme) this.scheme?.removeEventListener('change', this.onTheme);
    if (this.onRefresh) document.removeEventListener('surehook:refreshed', this.onRefresh);
    this.plot?.destroy();
  }

  /** Reads the table: times, and name, tone and values of each column. */
  readTable() {
    const table = document.querySelector(this.dataset.table ?? '');
    const heads = [...(table?.querySelectorAll('thead th[data-tone]') ?? [])];
    const rows = [...(table?.querySelectorAll('tbody tr') ?? [])];
    const times = rows.map((row) => Date.parse(row.querySelector('[data-at]')?.getAttribute('data-at') ?? '') / 1000);
    const cells = rows.map((row) => [...row.querySelectorAll('[data-value]')].map((cell) => cell.getAttribute('data-value')));
    const columns = heads.map((head, at) => ({
      name: head.textContent ?? '',
      tone: head.getAttribute('data-tone') ?? 'accent',
      values: cells.map((row) => (row[at] ? Number(row[at]) : null)),
    }));
    return { times, columns };
  }

  /** Bars are stacked, so the tallest is drawn first. */
  data() {
    const { times, columns } = this.readTable();
    this.columns = columns;
    this.times = times;
    const step = times.length > 1 ? times[1] - times[0] : 60;
    this.ends = [times[0] ?? 0, (times.at(-1) ?? 0) + (this.isBars ? step : 0)];
    const sums = columns.map((_, at) => times.map((_, n) => columns.slice(0, at + 1).reduce((sum, column) => sum + (column.values[n] ?? 0), 0)));
    const drawn = this.isBars ? sums : columns.map((column) => column.values);
    return [times, ...drawn.toReversed()];
  }

  get isBars() { return this.dataset.form === 'bars'; }

  /** The current value of a CSS color variable. @param {string} name */
  colour(name) {
    const probe = document.createElement('i');
    probe.style.color = `var(--${name})`;
    this.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  }

  draw() {
    this.plot?.destroy();
    this.replaceChildren();
    const data = this.data();
    if (!this.times?.length) return;
    this.legend = document.createElement('p');
    this.legend.className = 'chart-legend small';
    this.append(this.legend);
    const [soft, line] = [this.colour('soft'), this.colour('line')];
    const font = '11px system-ui, sans-serif';
    const isLong = this.ends[1] - this.ends[0] > 36 * 3600;
    const clock = new Intl.DateTimeFormat(root.lang, isLong ? { day: '2-digit', month: '2-digit', hour: '2-digit', hourCycle: 'h23', timeZone: zone } : { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZone: zone });
    this.moment = new Intl.DateTimeFormat(root.lang, { day: '2-digit', month: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', timeZone: zone });
    const shown = this.dataset.unit === 'ms' ? formatMillis : count.format;
    const bars = uPlot.paths.bars({ size: [0.82, 60], align: 1 });
    this.plot = new uPlot({
      width: this.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: !this.isBars }, y: false },
      scales: { x: { range: () => this.ends }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
      axes: [
        { stroke: soft, font, grid: { show: false }, ticks: { stroke: line, size: 4 }, size: 28, space: isLong ? 90 : 60, values: (_, at) => at.map((secs) => clock.format(secs * 1000)) },
        { stroke: soft, font, grid: { stroke: line, width: 1 }, ticks: { show: false }, size: 62, space: 34, values: (_, at) => at.map((value) => shown(value)) },
      ],
      series: [{}, ...this.columns.toReversed().map(({ tone }) => {
        const colour = this.colour(tone);
        return this.isBars ? { stroke: colour, fill: colour, width: 0, paths: bars, points: { show: false } } : { stroke: colour, width: 2, points: { size: 5 } };
      })],
      hooks: { setSelect: [(plot) => this.openRange(plot)], setCursor: [(plot) => this.updateLegend(plot.cursor.idx ?? null)] },
    }, data, this);
    this.updateLegend(null);
  }

  refresh() {
    const names = (this.columns ?? []).map((column) => column.name).join();
    const data = this.data();
    if (!this.plot || names !== this.columns.map((column) => column.name).join()) return this.draw();
    this.plot.setData(data);
    this.updateLegend(this.plot.cursor.idx ?? null);
  }

  /** Updates the legend with the values under the pointer. @param {number | null} at */
  updateLegend(at) {
    if (!this.legend || !this.columns) return;
    const isAt = at !== null && this.times[at] !== undefined;
    const parts = this.columns.map(({ name, tone, values }) => {
      const part = document.createElement('span');
      part.className = `key key-${tone}`;
      const value = isAt ? values[at] : null;
      const text = value === null || value === undefined ? '' : this.dataset.unit === 'ms' ? formatMillis(value) : exact.format(value);
      part.textContent = text ? `${name} ${text}` : name;
      return part;
    });
    const when = document.createElement('span');
    when.className = 'soft key-when';
    when.textContent = isAt ? this.moment.format(this.times[at] * 1000) : '';
    this.legend.replaceChildren(...parts, when);
  }

  /** Opens the selected time range. @param {any} plot */
  openRange(plot) {
    const { left, width } = plot.select;
    if (width < 8) return;
    const time = (/** @type {number} */ at) => new Date(Math.round(plot.posToVal(at, 'x')) * 1000).toISOString();
    location.assign(`${location.pathname}?since=${time(left)}&until=${time(left + width)}`);
  }
}
customElements.define('time-series', TimeSeries);
