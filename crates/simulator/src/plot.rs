//! Draws reports as SVG: what was delivered, and the load on the destination, over time.

use std::fmt::Write as _;

use crate::{
    behavior::TimeSpan,
    recorder::ratio,
    report::{SimulationReport, TimelineReport},
    scenario::Scenario,
};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 24.0;
const DELIVERED_HEIGHT: f64 = 170.0;
const LOAD_HEIGHT: f64 = 210.0;
const LEGEND_ROW: f64 = 22.0;
/// Neighbouring points of the time line that make one point of the plot.
const MERGED: usize = 2;
/// Colors that can be told apart by people with any color vision, for light and dark pages; after
/// the last one they repeat with the next dash pattern.
const COLORS: [(&str, &str); 6] = [
    ("#0067a8", "#56b4e9"),
    ("#c2500a", "#f0934e"),
    ("#00795a", "#2fc79c"),
    ("#a8447f", "#e08bbf"),
    ("#7a5c00", "#e0bd3c"),
    ("#4d4d4d", "#c4c4c4"),
];
const DASHES: [&str; 3] = ["none", "7 4", "2 3"];

/// Draws the reports of one scenario. `title` is plain text.
pub fn to_svg(scenario: &Scenario, title: &str, reports: &[SimulationReport]) -> String {
    let end = scenario.observation().timeline.as_secs_f64();
    let time = TimeAxis::new(end);
    let mut legend_bottom = 66.0;
    let mut legend = String::new();
    for (index, report) in reports.iter().enumerate() {
        legend_bottom += LEGEND_ROW;
        let stroke = stroke(index, reports.len());
        legend.push_str(&legend_row(&stroke, report, legend_bottom));
    }
    let delivered = Panel {
        title: "Delivered (% of all events)".to_owned(),
        top: legend_bottom + 40.0,
        height: DELIVERED_HEIGHT,
        max: 100.0,
        end,
    };
    let series: Vec<Vec<f64>> = reports.iter().map(attempts_per_second).collect();
    let peak = series.iter().flatten().copied().fold(0.0, f64::max);
    let load = Panel {
        title: format!("Attempts per second (means of {})", format_seconds(mean_over(reports))),
        top: delivered.top + delivered.height + 44.0,
        height: LOAD_HEIGHT,
        max: nice_max(peak.max(arrivals_per_second(scenario)) * 1.05),
        end,
    };
    let height = load.top + load.height + 56.0;

    let mut body = String::new();
    let incidents = scenario.incidents();
    for panel in [&delivered, &load] {
        panel.draw_frame(&mut body, &time, &incidents);
    }
    load.draw_arrivals(&mut body, arrivals_per_second(scenario));
    for (index, (report, per_second)) in reports.iter().zip(&series).enumerate() {
        let stroke = stroke(index, reports.len());
        delivered.draw_line(&mut body, &stroke, &delivered_share(report));
        load.draw_line(&mut body, &stroke, per_second);
    }
    time.draw_labels(&mut body, load.top + load.height, end);
    document(title, height, &format!("{}{legend}{body}", header(scenario, title, &incidents)))
}

fn document(title: &str, height: f64, body: &str) -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for (index, (on_light, on_dark)) in COLORS.iter().enumerate() {
        let _always = write!(light, ".c{index}{{stroke:{on_light}}}");
        let _always = write!(dark, ".c{index}{{stroke:{on_dark}}}");
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\" font-family=\"system-ui,sans-serif\" font-size=\"13\">\n<style>\
         .page{{fill:#fff}}.text{{fill:#24292f}}.soft{{fill:#57606a}}.grid{{stroke:#d8dee4}}\
         .axis{{stroke:#8c959f}}.incident{{fill:#cf222e;fill-opacity:.09}}\
         .line{{fill:none;stroke-linejoin:round}}{light}\
         @media (prefers-color-scheme:dark){{.page{{fill:#0d1117}}.text{{fill:#e6edf3}}\
         .soft{{fill:#9198a1}}.grid{{stroke:#2b323b}}.axis{{stroke:#6e7681}}\
         .incident{{fill:#ff7b72;fill-opacity:.14}}{dark}}}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n{body}</svg>\n",
        escape(title)
    )
}

fn header(scenario: &Scenario, title: &str, incidents: &[TimeSpan]) -> String {
    let mut text = format!(
        "<text class=\"text\" x=\"24\" y=\"34\" font-size=\"17\" font-weight=\"600\">{}</text>\n",
        escape(title)
    );
    let arrivals = &scenario.arrivals;
    let note = if incidents.is_empty() { "" } else { "; shaded: the incident" };
    let _always = writeln!(
        text,
        "<text class=\"soft\" x=\"24\" y=\"56\">{} events within {}{note}; dashed: mean of the events per second</text>",
        grouped(arrivals.deliveries),
        format_seconds(arrivals.over.0.as_secs_f64()),
    );
    text
}

fn legend_row(stroke: &str, report: &SimulationReport, y: f64) -> String {
    let times = &report.delivery_seconds;
    format!(
        "<line {stroke} x1=\"24\" x2=\"56\" y1=\"{:.0}\" y2=\"{:.0}\"/><text class=\"text\" x=\"66\" y=\"{y:.0}\">\
         <tspan font-weight=\"600\">{}</tspan><tspan class=\"soft\" dx=\"10\">{:.2} % delivered, {:.2} attempts per \
         event, p95 {}, peak {} attempts/s</tspan></text>\n",
        y - 4.0,
        y - 4.0,
        escape(&report.name),
        100.0 * ratio(report.succeeded, report.deliveries),
        report.attempts.mean,
        format_seconds(times.p95),
        report.load.peak_per_second,
    )
}

/// Lines that are drawn first are wider, so that they can be seen below equal ones.
fn stroke(index: usize, lines: usize) -> String {
    let dashes = DASHES[(index / COLORS.len()) % DASHES.len()];
    let below = u8::try_from(lines - 1 - index).unwrap_or(0).min(5);
    let width = 1.8 + 1.1 * f64::from(below);
    format!(
        "class=\"line c{}\" stroke-width=\"{width:.1}\" stroke-dasharray=\"{dashes}\"",
        index % COLORS.len()
    )
}

/// A part of the plot with its own vertical axis.
struct Panel {
    title: String,
    top: f64,
    height: f64,
    /// The value at its top; the bottom is 0.
    max: f64,
    /// The time at its right edge, in seconds.
    end: f64,
}

impl Panel {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (seconds / self.end).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - (value / self.max).clamp(0.0, 1.0))
    }

    fn draw_frame(&self, body: &mut String, time: &TimeAxis, incidents: &[TimeSpan]) {
        let (top, bottom) = (self.top, self.top + self.height);
        for span in incidents {
            let (from, until) = (self.x(span.from.as_secs_f64()), self.x(span.until.as_secs_f64()));
            let width = (until - from).max(0.5);
            let _always = writeln!(
                body,
                "<rect class=\"incident\" x=\"{from:.1}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"{:.0}\"/>",
                self.height
            );
        }
        let _always = writeln!(
            body,
            "<text class=\"text\" x=\"24\" y=\"{:.0}\" font-weight=\"600\">{}</text>",
            top - 14.0,
            self.title
        );
        let right = WIDTH - RIGHT;
        let step = nice_step(self.max / 5.0);
        let mut value = 0.0;
        while value <= self.max + step / 1000.0 {
            let y = self.y(value);
            let _always = writeln!(
                body,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"soft\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.5,
                format_number(value)
            );
            value += step;
        }
        for tick in time.ticks(self.end) {
            let x = self.x(tick);
            let _always = writeln!(
                body,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.0}\" y2=\"{bottom:.0}\"/>"
            );
        }
        let _always = writeln!(
            body,
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {top:.0}V{bottom:.0}H{right}\"/>"
        );
    }

    fn draw_arrivals(&self, body: &mut String, per_second: f64) {
        let y = self.y(per_second);
        let _always = writeln!(
            body,
            "<line class=\"axis\" stroke-dasharray=\"4 4\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT
        );
    }

    /// Draws values at equal distances.
    fn draw_line(&self, body: &mut String, stroke: &str, values: &[f64]) {
        let mut path = String::new();
        let count = ratio(u64::try_from(values.len()).unwrap_or(1), 1);
        let mut skipped = None;
        let mut last = f64::NAN;
        for (number, value) in (0_u32..).zip(values) {
            let (x, y) = (self.x(self.end * (f64::from(number) + 0.5) / count), self.y(*value));
            // Points on a level line are left out, except for its ends.
            if (y - last).abs() < 0.05 {
                skipped = Some(x);
                continue;
            }
            if let Some(x) = skipped.take() {
                let _always = write!(path, "L{x:.1} {last:.1}");
            }
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _always = write!(path, "{command}{x:.1} {y:.1}");
            last = y;
        }
        if let Some(x) = skipped {
            let _always = write!(path, "L{x:.1} {last:.1}");
        }
        let _always = writeln!(body, "<path {stroke} d=\"{path}\"/>");
    }
}

/// The horizontal axis.
struct TimeAxis {
    /// Seconds between two ticks.
    step: f64,
    /// Seconds of the unit of the labels.
    unit: f64,
    unit_name: &'static str,
}

impl TimeAxis {
    fn new(end: f64) -> Self {
        const UNITS: [(f64, &str); 4] =
            [(86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds")];
        const STEPS: [f64; 20] = [
            1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0,
            7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0,
        ];
        let (unit, unit_name) =
            UNITS.into_iter().find(|(unit, _)| end >= 2.0 * unit).unwrap_or((1.0, "seconds"));
        let step = STEPS.into_iter().find(|step| end / step <= 12.0).unwrap_or(end / 10.0);
        Self { step, unit, unit_name }
    }

    fn ticks(&self, end: f64) -> impl Iterator<Item = f64> {
        let step = self.step;
        (0_u32..).map(move |tick| f64::from(tick) * step).take_while(move |at| *at <= end * 1.001)
    }

    fn draw_labels(&self, body: &mut String, bottom: f64, end: f64) {
        for tick in self.ticks(end) {
            let x = LEFT + (WIDTH - LEFT - RIGHT) * (tick / end);
            let _always = writeln!(
                body,
                "<text class=\"soft\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                bottom + 20.0,
                format_number(tick / self.unit)
            );
        }
        let _always = writeln!(
            body,
            "<text class=\"soft\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">Time since the start ({})</text>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            bottom + 42.0,
            self.unit_name
        );
    }
}

fn arrivals_per_second(scenario: &Scenario) -> f64 {
    ratio(scenario.arrivals.deliveries, 1) / scenario.arrivals.over.0.as_secs_f64()
}

/// The time between two points of the plot, in seconds.
fn mean_over(reports: &[SimulationReport]) -> f64 {
    let points = ratio(u64::try_from(MERGED).unwrap_or(1), 1);
    reports.first().map_or(0.0, |report| report.timeline.point_seconds * points)
}

fn attempts_per_second(report: &SimulationReport) -> Vec<f64> {
    let TimelineReport { attempts, point_seconds, .. } = &report.timeline;
    let merged = attempts.chunks(MERGED);
    let seconds =
        |points: &[u64]| point_seconds * ratio(u64::try_from(points.len()).unwrap_or(1), 1);
    merged.map(|points| ratio(points.iter().sum(), 1) / seconds(points)).collect()
}

fn delivered_share(report: &SimulationReport) -> Vec<f64> {
    let mut sum = 0;
    let merged = report.timeline.delivered.chunks(MERGED);
    merged
        .map(|points| {
            sum += points.iter().sum::<u64>();
            100.0 * ratio(sum, report.deliveries)
        })
        .collect()
}

/// A round distance between ticks that is not below the least one.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least * 0.999)
        .unwrap_or(least)
}

fn nice_max(max: f64) -> f64 {
    let step = nice_step(max.max(0.1) / 5.0);
    (max.max(0.1) / step).ceil() * step
}

fn format_number(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    if rounded >= 10_000.0 { grouped_float(rounded) } else { format!("{rounded}") }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded positive number for people"
)]
fn grouped_float(value: f64) -> String {
    grouped(value as u64)
}

/// A number with a comma between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time span for people, with three significant digits.
pub fn format_seconds(seconds: f64) -> String {
    let (value, unit) = match seconds {
        _ if seconds < 1.0 => (seconds * 1000.0, "ms"),
        _ if seconds < 120.0 => (seconds, "s"),
        _ if seconds < 7200.0 => (seconds / 60.0, "min"),
        _ if seconds < 172_800.0 => (seconds / 3600.0, "h"),
        _ => (seconds / 86_400.0, "d"),
    };
    match value {
        _ if value.fract() == 0.0 || value >= 99.95 => format!("{value:.0} {unit}"),
        _ if value >= 9.995 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
