//! Pictures as SVG: panels side by side, with axes, curves, intervals, the numbers that somebody
//! else gave, and the names of curves beside the field. Reports and the papers' figures are drawn
//! by it.
//!
//! Equal pictures give equal bytes. Colours are classes of the page's style.

use core::fmt::Write;

use crate::saved::in_bytes;

/// Curves of a panel that are told apart, at most.
pub const CURVES_MAX: usize = 8;

const WIDTH: f64 = 720.0;
/// The edges of the field that curves are in.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 320.0;
/// The height of a line of the legend.
const LINE: f64 = 18.0;

const DASHES: [&str; 4] = ["none", "7 4", "2 3", "9 3 2 3"];

/// Panels that share a title and the conditions of their values.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The quantity that is drawn.
    pub title: String,
    /// The conditions of all values, in one line below.
    pub conditions: String,
    /// The panels, from left to right.
    pub panels: Vec<Panel>,
}

/// A field with two axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What tells it from the other panels.
    pub title: String,
    /// The axis at the bottom.
    pub x: Axis,
    /// The axis at the left.
    pub y: Axis,
    /// The curves, [`CURVES_MAX`] at most.
    pub curves: Vec<Curve>,
    /// The numbers of others beside the curves.
    pub marks: Vec<Mark>,
}

/// The places of values on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0.
    Linear,
    /// By powers of ten.
    Log,
    /// Bytes, by powers of two.
    Bytes,
    /// Percentiles, by how many nines they have.
    Nines,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The quantity, with its unit.
    pub name: &'static str,
    /// The places of values.
    pub scale: Scale,
}

/// A value of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The place on the axis at the bottom.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The interval of the value, if it has one.
    pub interval: Option<[f64; 2]>,
    /// Whether the load was too much there: a cross.
    pub is_saturated: bool,
}

impl Point {
    /// A value without an interval.
    #[must_use]
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y, interval: None, is_saturated: false }
    }
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The name beside the field.
    pub name: String,
    /// Below [`CURVES_MAX`].
    pub colour: usize,
    /// The dashes of its line.
    pub dash: usize,
    /// The form of its line.
    pub form: Form,
    /// Its values.
    pub points: Vec<Point>,
}

/// The form of a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A line with a mark at each value.
    #[default]
    Marked,
    /// A line without marks, for many values.
    Line,
    /// Marks without a line.
    Marks,
    /// Steps that begin at each value, for shares of a distribution.
    Steps,
}

/// A number of the paper, or a theory's, in the field.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A value at one place: a hollow mark with its name.
    Value {
        /// The place.
        x: f64,
        /// The value.
        y: f64,
        /// The name, such as "paper: 0.79".
        name: String,
    },
    /// A value everywhere: a dashed line across.
    Level {
        /// The value.
        y: f64,
        /// The name.
        name: String,
    },
    /// A place, such as a knee: a dashed line upwards.
    Place {
        /// The place.
        x: f64,
        /// The name.
        name: String,
    },
    /// A ratio of two values at one place: an arrow from one to the other.
    Ratio {
        /// The place.
        x: f64,
        /// The values at its ends.
        between: [f64; 2],
        /// The name, such as "2.1, paper 2.2".
        name: String,
    },
}

/// An axis with its ends, which are ticks as well.
struct Ruler {
    scale: Scale,
    ticks: Vec<f64>,
}

impl Scale {
    /// The place of a value, before the axis is stretched over the field.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.log10(),
            Self::Bytes => value.log2(),
            Self::Nines => -(1.0 - value / 100.0).log10(),
        }
    }

    fn label(self, value: f64) -> String {
        match value {
            _ if self == Self::Bytes => in_bytes(value as u64),
            1e6.. => format!("{}M", rounded(value / 1e6)),
            1e4.. => format!("{}k", rounded(value / 1e3)),
            _ => rounded(value),
        }
    }
}

/// A number without the digits that only its last bits make.
fn rounded(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Ruler {
    /// For values of which there is at least one.
    fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().fold(f64::MAX, f64::min);
        let high = values.fold(f64::MIN, f64::max);
        let ticks: Vec<f64> = match scale {
            Scale::Nines => vec![50.0, 90.0, 99.0, 99.9, 99.99],
            Scale::Bytes => {
                let (first, last) = (low.log2().floor() as i32, high.log2().ceil() as i32);
                let step = 1 + (last - first) / 12;
                let steps = ((last - first + step - 1) / step).max(1);
                (0..=steps).map(|it| 2_f64.powi(first + it * step)).collect()
            }
            Scale::Linear => {
                let nice = [1.0, 2.0, 5.0, 10.0];
                let power = 10_f64.powf((high / 5.0).log10().floor());
                let step = nice.iter().map(|it| it * power).find(|it| high / it <= 6.0);
                let step = step.unwrap_or(high);
                (0..=(high / step).ceil() as u32).map(|it| f64::from(it) * step).collect()
            }
            Scale::Log => {
                let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
                // Over a few decades, each has three.
                let parts: &[f64] = if last - first > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let all = (first..=last).flat_map(|it| parts.iter().map(move |part| (it, part)));
                let all: Vec<f64> = all.map(|(it, part)| part * 10_f64.powi(it)).collect();
                let from = all.iter().rposition(|it| *it <= low).unwrap_or(0);
                let to = all.iter().position(|it| *it >= high).unwrap_or(all.len() - 1);
                all[from..=to.max(from + 1).min(all.len() - 1)].to_vec()
            }
        };
        Self { scale, ticks }
    }

    /// The share of the axis that is before a value.
    fn share(&self, value: f64) -> f64 {
        let place = |it: f64| self.scale.place(it);
        let (first, last) = (place(self.ticks[0]), place(self.ticks[self.ticks.len() - 1]));
        (place(value) - first) / (last - first)
    }
}

/// Text of a file, as text of the page.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ if letter.is_control() => escaped.push('\u{FFFD}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// A mark, of another form for each colour, as an SVG path.
fn mark(colour: usize, x: f64, y: f64) -> String {
    let form = match colour % 4 {
        0 => "m-3.5-3.5h7v7h-7z",
        1 => "m0-4.5l4.5 8h-9z",
        2 => "m0-5l5 5-5 5-5-5z",
        _ => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    };
    let fill = if colour < 4 { "full" } else { "open" };
    format!("<path class='{fill}' d='M{x:.1} {y:.1}{form}'/>")
}

impl Picture {
    /// The picture as SVG; `None` if no panel has a curve of two points.
    #[must_use]
    pub fn draw(&self) -> Option<String> {
        let drawn: Vec<String> = self.panels.iter().filter_map(Panel::draw).collect();
        (!drawn.is_empty()).then(|| drawn.concat())
    }
}

impl Panel {
    /// The panel as SVG; `None` if there is no curve of two points.
    fn draw(&self) -> Option<String> {
        // All else cannot be placed.
        let placed = |it: f64| (1e-12..1e18).contains(&it);
        let mut curves = self.curves.clone();
        for curve in &mut curves {
            curve.points.retain(|it| placed(it.x) && placed(it.y));
            curve.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        curves.retain(|it| !it.points.is_empty());
        curves.iter().find(|it| it.points.len() > 1)?;
        let points = curves.iter().flat_map(|it| &it.points);
        let x_ruler = Ruler::new(self.x.scale, points.clone().map(|it| it.x));
        let y_ruler = Ruler::new(self.y.scale, points.map(|it| it.y));
        let x = |value: f64| LEFT + (RIGHT - LEFT) * x_ruler.share(value);
        let y = |value: f64| BOTTOM - (BOTTOM - TOP) * y_ruler.share(value);

        let height = BOTTOM + 50.0 + LINE * curves.len() as f64;
        let title = escape(&self.title);
        let mut svg =
            format!("<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{title}'>\n");
        let out = &mut svg;
        let written = (|| {
            for tick in &x_ruler.ticks {
                let (at, label) = (x(*tick), self.x.scale.label(*tick));
                writeln!(out, "<path class='grid' d='M{at:.1} {TOP}V{BOTTOM}'/>")?;
                writeln!(out, "<text x='{at:.1}' y='{}' class='x'>{label}</text>", BOTTOM + 16.0)?;
            }
            for tick in &y_ruler.ticks {
                let (at, label) = (y(*tick), self.y.scale.label(*tick));
                writeln!(out, "<path class='grid' d='M{LEFT} {at:.1}H{RIGHT}'/>")?;
                let (x, y) = (LEFT - 6.0, at + 4.0);
                writeln!(out, "<text x='{x}' y='{y:.1}' class='y'>{label}</text>")?;
            }
            let (middle, below) = ((LEFT + RIGHT) / 2.0, BOTTOM + 33.0);
            writeln!(out, "<text x='{middle}' y='{below}' class='x'>{}</text>", self.x.name)?;
            let (up, name) = ((TOP + BOTTOM) / 2.0, self.y.name);
            writeln!(
                out,
                "<text transform='translate(14 {up})rotate(-90)' class='x'>{name}</text>"
            )?;
            for (curve, place) in curves.iter().zip(0_u32..) {
                let Curve { name, colour, dash, points, .. } = curve;
                let dash = DASHES[dash % DASHES.len()];
                writeln!(out, "<g class='c{colour}'>")?;
                let line = points.iter().map(|it| format!("{:.1},{:.1}", x(it.x), y(it.y)));
                let line = line.collect::<Vec<_>>().join(" ");
                writeln!(out, "<polyline stroke-dasharray='{dash}' points='{line}'/>")?;
                for Point { x: at, y: value, is_saturated, .. } in points {
                    let (x, y) = (x(*at), y(*value));
                    out.write_str(&mark(*colour, x, y))?;
                    if *is_saturated {
                        write!(
                            out,
                            "<path class='cross' d='M{x:.1} {y:.1}m-7-7l14 14m0-14l-14 14'/>"
                        )?;
                    }
                }
                let y = BOTTOM + 52.0 + LINE * f64::from(place);
                writeln!(out, "<path stroke-dasharray='{dash}' d='M{LEFT} {y}h40'/>")?;
                let (x, baseline) = (LEFT + 50.0, y + 4.0);
                out.write_str(&mark(*colour, LEFT + 20.0, y))?;
                writeln!(out, "<text x='{x}' y='{baseline}'>{}</text></g>", escape(name))?;
            }
            writeln!(out, "</svg>")
        })();
        let _: core::fmt::Result = written; // A string takes all.
        Some(svg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale, values: &[f64]) -> Vec<String> {
        let ruler = Ruler::new(scale, values.iter().copied());
        ruler.ticks.iter().map(|it| scale.label(*it)).collect()
    }

    #[test]
    fn ticks_are_round_and_reach_around_all_values() {
        assert_eq!(ticks(Scale::Log, &[3.0, 18.0]), ["2", "5", "10", "20"]);
        assert_eq!(ticks(Scale::Log, &[10.0]), ["10", "20"]);
        assert_eq!(ticks(Scale::Log, &[0.3, 9e5]).first().map(String::as_str), Some("0.1"));
        assert_eq!(
            ticks(Scale::Linear, &[230e3, 12e3]),
            ["0", "50k", "100k", "150k", "200k", "250k"]
        );
        assert_eq!(ticks(Scale::Bytes, &[64.0, 4096.0]).last().map(String::as_str), Some("4 KiB"));
        assert_eq!(ticks(Scale::Bytes, &[1.0]), ["1 B", "2 B"]);
    }

    #[test]
    fn values_that_cannot_be_placed_are_left_out() {
        let points = [(1.0, 1.0), (2.0, 1e308), (0.0, 1.0), (-1.0, 1.0), (9.0, 7.0)];
        let points = points.map(|(x, y)| Point::new(x, y)).to_vec();
        let curve = Curve { name: "a".to_owned(), colour: 0, dash: 0, form: Form::Marked, points };
        let axis = |scale| Axis { name: "axis", scale };
        let panel = |x, curves| Panel {
            title: "t".to_owned(),
            x,
            y: axis(Scale::Log),
            curves,
            marks: Vec::new(),
        };
        for scale in [Scale::Linear, Scale::Log, Scale::Bytes] {
            let curves = vec![curve.clone()];
            let svg = panel(axis(scale), curves).draw();
            let svg = svg.expect("two points are left");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let curves = vec![Curve { points: vec![Point::new(1.0, 1.0)], ..curve }];
        assert!(panel(axis(Scale::Log), curves).draw().is_none());
    }
}
