//! A panel that is being drawn: numbers of others, and names beside it or where they hide nothing.

use super::{
    labels::{Area, LINE, Spot, Taken, add_text, width},
    picture::{CURVES_MAX, Curve, Form},
};

/// The dashes of lines: each shows what is below it, but for the first.
pub(super) const DASHES: [&str; 8] =
    ["none", "7 4", "2 3", "9 3 2 3", "12 3", "4 2", "1 5", "14 4 2 4 2 4"];
/// The room of a curve's line beside its name.
pub(super) const SAMPLE: f64 = 26.0;

const RING: &str = "m-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0z";

/// A panel that is being drawn.
pub(super) struct Ink {
    pub(super) svg: String,
    pub(super) taken: Taken,
    pub(super) field: Area,
}

/// The form of a number of others.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// A ring around a place.
    Ring(Spot),
    /// A line across at a height.
    Across(f64),
    /// An arrow between two places of which one is above the other.
    Arrow([Spot; 2]),
    /// Nothing that can be drawn.
    Nowhere,
}

/// A number of others that is drawn, and wants its name.
pub(super) struct Called<'a> {
    pub(super) name: &'a str,
    pub(super) shape: Shape,
}

/// A name beside the field.
pub(super) struct Name<'a> {
    /// The height where it wants to be.
    pub(super) at: f64,
    pub(super) words: String,
    pub(super) sample: Sample<'a>,
}

/// The piece of a curve or mark before a name.
pub(super) enum Sample<'a> {
    Curve(&'a Curve),
    Shape(Shape),
}

impl Ink {
    pub(super) const fn new(field: Area) -> Self {
        Self { svg: String::new(), taken: Taken::new(field), field }
    }

    pub(super) fn add(&mut self, svg: &str) {
        self.svg += svg;
    }

    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, words: &str) {
        add_text(&mut self.svg, Spot { x, y }, class, words);
    }

    /// Draws a number of others.
    pub(super) fn called<'a>(&mut self, name: &'a str, shape: Shape) -> Called<'a> {
        let Area { left, right, .. } = self.field;
        match shape {
            Shape::Ring(at) => {
                self.add(&format!("<path class='mark' d='M{:.1} {:.1}{RING}'/>\n", at.x, at.y));
                let Spot { x, y } = at;
                let around = Area { left: x - 7.0, top: y - 7.0, right: x + 7.0, bottom: y + 7.0 };
                self.taken.area(around);
            }
            Shape::Across(y) => {
                self.add(&format!(
                    "<path class='mark dashed' d='M{left:.1} {y:.1}H{right:.1}'/>\n"
                ));
                self.taken.line(Spot { x: left, y }, Spot { x: right, y });
            }
            Shape::Arrow([one, other]) => {
                let (top, bottom) = (one.y.min(other.y), one.y.max(other.y));
                let x = one.x;
                self.add(&format!(
                    "<path class='mark' d='M{x:.1} {top:.1}V{bottom:.1}m-3.5-5l3.5 5 3.5-5M{x:.1} \
                     {top:.1}m-3.5 5l3.5-5 3.5 5'/>\n"
                ));
                self.taken.line(one, other);
            }
            Shape::Nowhere => {}
        }
        Called { name, shape }
    }

    /// Draws a dashed line at a place.
    pub(super) fn upwards(&mut self, x: f64) {
        let Area { top, bottom, .. } = self.field;
        self.add(&format!("<path class='mark dashed' d='M{x:.1} {top:.1}V{bottom:.1}'/>\n"));
        self.taken.line(Spot { x, y: top }, Spot { x, y: bottom });
    }
}

impl<'a> Called<'a> {
    /// Writes its name where that hides nothing. If there is no such place, it is to stand beside
    /// the field.
    pub(super) fn words(self, ink: &mut Ink) -> Option<Name<'a>> {
        let wide = width(self.name);
        let places = self.shape.places(&ink.field, wide);
        if let Some(Spot { x, y }) = ink.taken.place(wide, &places) {
            ink.text(x, y + 4.0, "", self.name);
            return None;
        }
        let at = match self.shape {
            Shape::Ring(at) | Shape::Arrow([at, _]) => at.y,
            Shape::Across(y) => y,
            Shape::Nowhere => ink.field.bottom,
        };
        let has_none = matches!(self.shape, Shape::Nowhere);
        let end = if has_none { " (has no place on these axes)" } else { "" };
        Some(Name { at, words: format!("{}{end}", self.name), sample: Sample::Shape(self.shape) })
    }
}

impl Shape {
    /// Places for words of this width, the best ones first: their left end, at half their height.
    fn places(self, field: &Area, width: f64) -> Vec<Spot> {
        let spots = |xs: &[f64], ys: &[f64]| -> Vec<Spot> {
            ys.iter().flat_map(|&y| xs.iter().map(move |&x| Spot { x, y })).collect()
        };
        match self {
            Self::Ring(Spot { x, y }) => {
                let beside = [x + 11.0, x - 11.0 - width];
                let over = [x + 11.0, x - 11.0 - width, x - width / 2.0];
                let mut all = spots(&beside, &[y]);
                all.extend(spots(&over, &[y - 16.0, y + 16.0, y - 30.0, y + 30.0]));
                all
            }
            Self::Across(y) => {
                let (left, right) = (field.left + 6.0, field.right - 6.0 - width);
                let along = |it: u32| right - (right - left) * f64::from(it) / 8.0;
                spots(&[0, 1, 2, 3, 4, 5, 6, 7, 8].map(along), &[y - 10.0, y + 10.0])
            }
            Self::Arrow([one, other]) => {
                let at = |share: f64| one.y + (other.y - one.y) * share;
                let beside = [one.x - 9.0 - width, one.x + 9.0];
                spots(&beside, &[0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9].map(at))
            }
            Self::Nowhere => Vec::new(),
        }
    }

    /// A small picture of it, around a place.
    const fn sample(self) -> &'static str {
        match self {
            Self::Ring(_) => RING,
            Self::Across(_) => "m-10 0h5m3 0h5m3 0h5",
            Self::Arrow(_) => "m0-6v12m-3-4l3 4 3-4m-6-4l3-4 3 4",
            Self::Nowhere => "m-5-5l10 10m0-10l-10 10",
        }
    }
}

impl Name<'_> {
    /// Draws it in these lines below a place.
    pub(super) fn draw(&self, lines: &[String], at: Spot, ink: &mut Ink) {
        let (left, middle) = (at.x, at.y + LINE / 2.0);
        match self.sample {
            Sample::Curve(curve) => curve.sample(Spot { x: left, y: middle }, ink),
            Sample::Shape(shape) => {
                let (x, form) = (left + 11.0, shape.sample());
                ink.add(&format!("<path class='mark' d='M{x:.1} {middle:.1}{form}'/>\n"));
            }
        }
        for (line, below) in lines.iter().zip(0_u32..) {
            ink.text(left + SAMPLE, middle + 4.0 + LINE * f64::from(below), "", line);
        }
    }
}

impl Curve {
    /// A piece of it, from a place.
    fn sample(&self, Spot { x, y }: Spot, ink: &mut Ink) {
        ink.add(&format!("<g class='c{}'>", self.colour % CURVES_MAX));
        if self.form == Form::Spans {
            ink.add(&format!("<path class='bar full' d='M{x:.1} {:.1}h22v8h-22z'/>", y - 4.0));
        } else if self.form != Form::Marks {
            let dash = DASHES[self.dash % DASHES.len()];
            ink.add(&format!("<path stroke-dasharray='{dash}' d='M{x:.1} {y:.1}h22'/>"));
        }
        if matches!(self.form, Form::Marked | Form::Marks) {
            ink.add(&shape(self.colour, Spot { x: x + 11.0, y }));
        }
        ink.add("</g>\n");
    }
}

/// A mark of a curve, of another form for each colour.
pub(super) fn shape(colour: usize, Spot { x, y }: Spot) -> String {
    let form = match colour % 4 {
        0 => "m-3.5-3.5h7v7h-7z",
        1 => "m0-4.5l4.5 8h-9z",
        2 => "m0-5l5 5-5 5-5-5z",
        _ => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    };
    let fill = if colour % CURVES_MAX < 4 { "full" } else { "open" };
    format!("<path class='{fill}' d='M{x:.1} {y:.1}{form}'/>")
}
