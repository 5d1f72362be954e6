//! One panel: its field with curves and the numbers of others, and names beside it.

use super::{
    ink::{Called, DASHES, Ink, Name, SAMPLE, Sample, Shape, shape},
    labels::{Area, LINE, Spot, spread, width, wrapped},
    picture::{CURVES_MAX, Curve, Form, Mark, Panel, Point, escape},
    ruler::Ruler,
};

/// The room that the ticks and name of the axis at the left have, and that below the field.
const LEFT: f64 = 66.0;
const BELOW: f64 = 46.0;

/// The part of a picture that a panel has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) left: f64,
    pub(super) width: f64,
    /// The widest that lines of names may be, and the widest that there is.
    pub(super) names_max: f64,
    pub(super) names: f64,
}

/// A panel whose curves have only values with a place on its axes.
#[derive(Debug)]
pub(super) struct Placed<'a> {
    panel: &'a Panel,
    x: Ruler,
    y: Ruler,
    curves: Vec<Curve>,
    /// Values without a place.
    pub(super) left_out: usize,
}

/// The name of a place, above the field.
struct Above {
    middle: f64,
    /// The line of words that it is in, from the field upwards.
    row: usize,
}

impl Panel {
    /// All that its axis at the bottom has to have a place for.
    pub(super) fn xs(&self) -> Vec<f64> {
        let of_curve = |curve: &Curve| -> Vec<f64> {
            let own = curve.points.iter().flat_map(|it| {
                let ends = it.interval.filter(|_| curve.form == Form::Spans);
                [it.x].into_iter().chain(ends.into_iter().flatten())
            });
            own.chain(curve.end_of_steps()).collect()
        };
        let of_mark = |mark: &Mark| match mark {
            Mark::Value { x, .. } | Mark::Place { x, .. } | Mark::Ratio { x, .. } => Some(*x),
            Mark::Level { .. } => None,
        };
        let mut all: Vec<f64> = self.curves.iter().flat_map(of_curve).collect();
        all.extend(self.marks.iter().filter_map(of_mark));
        all
    }

    /// All that its axis at the left has to have a place for.
    pub(super) fn ys(&self) -> Vec<f64> {
        let of_curve = |curve: &Curve| -> Vec<f64> {
            let own = curve.points.iter().flat_map(|it| {
                let ends = it.interval.filter(|_| curve.form != Form::Spans);
                [it.y].into_iter().chain(ends.into_iter().flatten())
            });
            own.collect()
        };
        let of_mark = |mark: &Mark| match mark {
            Mark::Value { y, .. } | Mark::Level { y, .. } => vec![*y],
            Mark::Ratio { between, .. } => between.to_vec(),
            Mark::Place { .. } => Vec::new(),
        };
        let mut all: Vec<f64> = self.curves.iter().flat_map(of_curve).collect();
        all.extend(self.marks.iter().flat_map(of_mark));
        all
    }
}

impl Curve {
    /// Its name, and whether there is nothing of it.
    fn words(&self) -> String {
        let end = if self.points.is_empty() { ": no value" } else { "" };
        format!("{}{end}", self.name)
    }

    /// The end of the last step, which is as long as the one before.
    fn end_of_steps(&self) -> Option<f64> {
        match self.points[..] {
            [.., Point { x: before, .. }, Point { x: last, .. }] if self.form == Form::Steps => {
                Some(last + (last - before))
            }
            _ => None,
        }
    }
}

impl<'a> Placed<'a> {
    /// `None` if there are no two values beside each other.
    pub(super) fn new(panel: &'a Panel, x: Ruler, y: Ruler) -> Option<Self> {
        let mut curves = panel.curves.clone();
        let count = |curves: &[Curve]| curves.iter().map(|it| it.points.len()).sum::<usize>();
        let all = count(&curves);
        for curve in &mut curves {
            curve.points.retain(|it| x.takes(it.x) && y.takes(it.y));
            curve.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        let mut points = curves.iter().flat_map(|it| &it.points);
        let first = points.next()?;
        let has_two = points.any(|it| it.x.total_cmp(&first.x).is_ne());
        let left_out = all - count(&curves);
        has_two.then_some(Self { panel, x, y, curves, left_out })
    }

    /// The room for the names beside its field; none for a curve without a name.
    pub(super) fn names_width(&self, limit: f64) -> f64 {
        let names = self.curves.iter().map(Curve::words);
        let widths = names.flat_map(|it| wrapped(&it, limit)).map(|it| width(&it));
        let has_words = self.panel.marks.iter().any(|it| !matches!(it, Mark::Place { .. }));
        widths.fold(if has_words { 80.0 } else { 0.0 }, f64::max)
    }

    /// The left and right end of the field.
    fn sides(&self, slot: &Slot) -> [f64; 2] {
        let names = match slot.names {
            0.0 => 20.0,
            names => 12.0 + SAMPLE + names + 8.0,
        };
        [slot.left + LEFT, slot.left + slot.width - names]
    }

    /// The names of places, which stand above the field.
    fn above(&self, slot: &Slot) -> Vec<Above> {
        let [left, right] = self.sides(slot);
        let mut rows: Vec<Vec<[f64; 2]>> = Vec::new();
        let mut all = Vec::new();
        for mark in &self.panel.marks {
            let Mark::Place { x, name } = mark else { continue };
            let half = width(name) / 2.0 + 5.0;
            let middle = left + (right - left) * self.x.share(*x);
            // Not over the ticks of the axis at the left.
            let most = (slot.left + slot.width - half).max(left + half);
            let middle = middle.clamp(left + half, most);
            let ends = [middle - half, middle + half];
            let is_free =
                |row: &Vec<[f64; 2]>| row.iter().all(|it| ends[1] <= it[0] || it[1] <= ends[0]);
            let row = rows.iter().position(is_free).unwrap_or(rows.len());
            rows.resize(rows.len().max(row + 1), Vec::new());
            rows[row].push(ends);
            all.push(Above { middle, row });
        }
        all
    }

    /// The height of all that is above its field.
    pub(super) fn head(&self, slot: &Slot) -> f64 {
        let rows = self.above(slot).iter().map(|it| it.row + 1).max().unwrap_or(0);
        let title = if self.panel.title.is_empty() { 0.0 } else { LINE + 2.0 };
        12.0 + title + LINE * rows as f64
    }

    /// The height that its field needs for the names beside it.
    pub(super) fn names_height(&self, slot: &Slot) -> f64 {
        let heights = self.curves.iter().map(|it| wrapped(&it.words(), slot.names_max).len());
        heights.map(|lines| lines as f64 * LINE + 3.0).sum()
    }

    /// Draws it between these heights, which are those of its field; what is below the field takes
    /// [`Placed::BELOW`] more.
    pub(super) fn draw(&self, slot: &Slot, top: f64, bottom: f64) -> String {
        let [left, right] = self.sides(slot);
        let mut ink = Ink::new(Area { left, top, right, bottom });
        let above = self.above(slot);
        if !self.panel.title.is_empty() {
            let rows = above.iter().map(|it| it.row + 1).max().unwrap_or(0);
            ink.text(left, top - 10.0 - LINE * rows as f64, "title", &self.panel.title);
        }
        self.axes(&mut ink);
        let mut curves: Vec<&Curve> = self.curves.iter().collect();
        // A line without gaps is below all others.
        curves.sort_by_key(|it| it.dash % DASHES.len());
        curves.iter().for_each(|it| self.line(it, &mut ink));
        curves.iter().for_each(|it| self.points(it, &mut ink));
        let mut names: Vec<Name<'_>> = self.curves.iter().map(|it| self.name(it, &ink)).collect();
        names.retain(|it| !it.words.is_empty());
        names.extend(self.marks(&above, &mut ink));
        names.sort_by(|a, b| a.at.total_cmp(&b.at));
        let lines: Vec<Vec<String>> =
            names.iter().map(|it| wrapped(&it.words, slot.names_max)).collect();
        let wanted: Vec<f64> = names.iter().map(|it| it.at).collect();
        let counts: Vec<usize> = lines.iter().map(Vec::len).collect();
        let tops = spread(&wanted, &counts, top, bottom);
        for ((name, lines), top) in names.iter().zip(lines).zip(tops) {
            name.draw(&lines, Spot { x: right + 12.0, y: top }, &mut ink);
        }
        ink.svg
    }

    /// The room below the field.
    pub(super) const BELOW: f64 = BELOW;

    fn spot(&self, field: &Area, x: f64, y: f64) -> Spot {
        Spot {
            x: field.left + (field.right - field.left) * self.x.share(x),
            y: field.bottom - (field.bottom - field.top) * self.y.share(y),
        }
    }

    fn axes(&self, ink: &mut Ink) {
        let Area { left, top, right, bottom } = ink.field;
        let mut free = f64::MIN;
        for tick in self.x.ticks() {
            let at = left + (right - left) * tick.share;
            ink.add(&format!("<path class='grid' d='M{at:.1} {top:.1}V{bottom:.1}'/>\n"));
            let half = width(&tick.label) / 2.0;
            if at - half >= free {
                ink.text(at, bottom + 16.0, "x", &tick.label);
                free = at + half + 4.0;
            }
        }
        for tick in self.y.ticks() {
            let at = bottom - (bottom - top) * tick.share;
            ink.add(&format!("<path class='grid' d='M{left:.1} {at:.1}H{right:.1}'/>\n"));
            ink.text(left - 9.0, at + 4.0, "y", &tick.label);
        }
        let name = |name: &str, ruler: &Ruler| {
            if ruler.is_log() { format!("{name}, logarithmic") } else { name.to_owned() }
        };
        let x = name(self.panel.x.name, &self.x);
        ink.text(f64::midpoint(left, right), bottom + 34.0, "x", &x);
        let y = escape(&name(self.panel.y.name, &self.y));
        let (across, up) = (left - LEFT + 12.0, f64::midpoint(top, bottom));
        ink.add(&format!(
            "<text class='x' transform='translate({across:.1} {up:.1})rotate(-90)'>{y}</text>\n"
        ));
    }

    fn line(&self, curve: &Curve, ink: &mut Ink) {
        if matches!(curve.form, Form::Marks | Form::Spans) {
            return;
        }
        let corners = self.corners(curve, &ink.field);
        let line: Vec<String> =
            corners.iter().map(|it| format!("{:.1},{:.1}", it.x, it.y)).collect();
        let (colour, line) = (curve.colour % CURVES_MAX, line.join(" "));
        let dash = DASHES[curve.dash % DASHES.len()];
        ink.add(&format!(
            "<polyline class='c{colour}' stroke-dasharray='{dash}' points='{line}'/>\n"
        ));
        corners.windows(2).for_each(|it| ink.taken.line(it[0], it[1]));
    }

    fn points(&self, curve: &Curve, ink: &mut Ink) {
        ink.add(&format!("<g class='c{}'>\n", curve.colour % CURVES_MAX));
        for point in &curve.points {
            if curve.form == Form::Spans {
                self.span(point, ink)
            } else {
                self.point(curve, point, ink)
            }
        }
        ink.add("</g>\n");
    }

    /// The corners of a curve's line.
    fn corners(&self, curve: &Curve, field: &Area) -> Vec<Spot> {
        let spots: Vec<Spot> = curve.points.iter().map(|it| self.spot(field, it.x, it.y)).collect();
        let Some(end) = curve.end_of_steps() else { return spots };
        let ends = spots.iter().skip(1).map(|it| it.x).chain([self.spot(field, end, 0.0).x]);
        let steps = spots.iter().zip(ends);
        steps.flat_map(|(it, end)| [*it, Spot { x: end, y: it.y }]).collect()
    }

    fn point(&self, curve: &Curve, point: &Point, ink: &mut Ink) {
        let Spot { x, y } = self.spot(&ink.field, point.x, point.y);
        if let Some(ends) = point.interval.filter(|it| it.iter().all(|it| it.is_finite())) {
            let [low, high] = ends.map(|it| self.spot(&ink.field, point.x, it));
            ink.add(&format!(
                "<path class='interval' d='M{x:.1} {:.1}V{:.1}m-3 0h6M{x:.1} {:.1}m-3 0h6'/>",
                low.y, high.y, low.y
            ));
            ink.taken.line(low, high);
        }
        if matches!(curve.form, Form::Marked | Form::Marks) {
            ink.add(&shape(curve.colour, Spot { x, y }));
            ink.taken.area(Area { left: x - 5.0, top: y - 5.0, right: x + 5.0, bottom: y + 5.0 });
        }
        if point.is_saturated {
            ink.add(&format!("<path class='cross' d='M{x:.1} {y:.1}m-7-7l14 14m0-14l-14 14'/>"));
        }
        ink.add("\n");
    }

    /// A bar over an interval of the axis at the bottom, as high as most of a row.
    fn span(&self, point: &Point, ink: &mut Ink) {
        let ends = point.interval.unwrap_or([point.x; 2]);
        let [from, to] = ends.map(|it| self.spot(&ink.field, it, point.y));
        let row = (from.y - self.spot(&ink.field, point.x, point.y + 1.0).y).abs();
        let (height, width) = ((row * 0.8).max(1.0), (to.x - from.x).max(0.8));
        let (x, top) = (from.x, from.y - height / 2.0);
        ink.add(&format!(
            "<path class='bar full' d='M{x:.1} {top:.1}h{width:.1}v{height:.1}h-{width:.1}z'/>\n"
        ));
    }

    fn name<'b>(&self, curve: &'b Curve, ink: &Ink) -> Name<'b> {
        let last = curve.points.last().map(|it| self.spot(&ink.field, it.x, it.y).y);
        let at = last.unwrap_or(ink.field.bottom);
        Name { at, words: curve.words(), sample: Sample::Curve(curve) }
    }

    /// Draws the numbers of others, and returns the names for which the field has no free place.
    fn marks(&self, above: &[Above], ink: &mut Ink) -> Vec<Name<'a>> {
        let mut above = above.iter();
        // First all that is drawn, then the words.
        let mut called = Vec::new();
        for mark in &self.panel.marks {
            match mark {
                Mark::Value { x, y, name } if self.x.takes(*x) && self.y.takes(*y) => {
                    let at = self.spot(&ink.field, *x, *y);
                    called.push(ink.called(name, Shape::Ring(at)));
                }
                Mark::Level { y, name } if self.y.takes(*y) => {
                    let Spot { y, .. } = self.spot(&ink.field, 0.0, *y);
                    called.push(ink.called(name, Shape::Across(y)));
                }
                Mark::Ratio { x, between, name }
                    if self.x.takes(*x) && between.iter().all(|it| self.y.takes(*it)) =>
                {
                    let ends = between.map(|it| self.spot(&ink.field, *x, it));
                    called.push(ink.called(name, Shape::Arrow(ends)));
                }
                Mark::Place { x, name } => {
                    let Some(Above { middle, row }) = above.next() else { continue };
                    let y = ink.field.top - 5.0 - LINE * *row as f64;
                    ink.text(*middle, y, "x", name);
                    if self.x.takes(*x) {
                        ink.upwards(self.spot(&ink.field, *x, 0.0).x);
                    }
                }
                Mark::Value { name, .. } | Mark::Level { name, .. } | Mark::Ratio { name, .. } => {
                    called.push(Called { name, shape: Shape::Nowhere });
                }
            }
        }
        called.into_iter().filter_map(|it| it.words(ink)).collect()
    }
}
