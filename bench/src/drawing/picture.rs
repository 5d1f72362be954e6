//! Pictures as data: panels, axes, curves, and the numbers of others.

/// Curves of a panel that are told apart, at most.
pub const CURVES_MAX: usize = 8;

/// Panels that share a title and the conditions of their values.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The quantity that is drawn.
    pub title: String,
    /// The conditions of all values, in one line below.
    pub conditions: String,
    /// The panels, from left to right, two in a row. Axes of one name and scale have the same ends.
    pub panels: Vec<Panel>,
}

/// A field with two axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The words that tell it from the other panels.
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
    /// Linear, unless all values are above 0 and span more than 20 times.
    Auto,
    /// Bytes, by powers of two.
    Bytes,
    /// Percentiles, by how many nines they have.
    Nines,
}

/// An axis with its name and scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Values that belong together.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The name beside the field.
    pub name: String,
    /// Its colour and the shape of its marks, below [`CURVES_MAX`].
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
    /// A bar for each value, in a row of its own, over its interval, which here is one of the axis
    /// at the bottom: what somebody did, and from when until when.
    Spans,
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
