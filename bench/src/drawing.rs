//! Pictures as SVG: panels side by side, with axes, curves, intervals, the numbers that somebody
//! else gave, and the names of curves beside the field. Reports and the papers' figures are drawn
//! by it.
//!
//! Equal pictures give equal bytes. Colours are classes of [`STYLE`], which a page has once and a
//! file has in itself.
//!
//! | module | what it is |
//! |---|---|
//! | `picture` | pictures as data |
//! | `ruler` | the scale of an axis, its ends and ticks |
//! | `labels` | how wide words are, and where they hide nothing |
//! | `panel` | one panel: axes, curves, names |
//! | `ink` | numbers of others and names, as they are drawn |

mod ink;
mod labels;
mod panel;
mod picture;
mod ruler;

pub use self::picture::{
    Axis, CURVES_MAX, Curve, Form, Mark, Panel, Picture, Point, Scale, escape,
};
use self::{
    labels::{LINE, Spot, add_text, wrapped},
    panel::{Placed, Slot},
    ruler::Ruler,
};

/// The style of pictures on a page, light and dark.
pub const STYLE: &str = include_str!("drawing/style.css");

/// The width of a picture of one panel, and of those of more, of which two stand in a row.
const WIDTHS: [f64; 2] = [720.0, 960.0];
/// The height of a field in each of them.
const HEIGHTS: [f64; 2] = [320.0, 270.0];
/// The widest that names beside a field are in each of them.
const NAMES: [f64; 2] = [170.0, 130.0];

impl Picture {
    /// The picture as a part of a page that has [`STYLE`]; `None` if no panel has two values beside
    /// each other.
    #[must_use]
    pub fn draw(&self) -> Option<String> {
        self.svg("", "")
    }

    /// The picture as a file of its own, with all that it needs inside.
    #[must_use]
    pub fn file(&self) -> Option<String> {
        let inside =
            format!("<style>\n{STYLE}</style>\n<path class='ground' d='M0 0h9999v9999h-9999z'/>\n");
        self.svg(" xmlns='http://www.w3.org/2000/svg'", &inside)
    }

    fn svg(&self, attributes: &str, inside: &str) -> Option<String> {
        let panels: Vec<Placed<'_>> = self.panels.iter().filter_map(|it| self.placed(it)).collect();
        let columns = panels.len().clamp(1, 2);
        let [width, height, names_max] = [WIDTHS, HEIGHTS, NAMES].map(|it| it[columns - 1]);
        if panels.is_empty() {
            return None;
        }
        let mut svg = String::new();
        let mut top = 4.0;
        for line in wrapped(&self.title, width - 20.0) {
            top += LINE;
            add_text(&mut svg, Spot { x: 8.0, y: top - 2.0 }, "title", &line);
        }
        let names = panels.iter().map(|it| it.names_width(names_max)).fold(0.0, f64::max);
        let slots = [0.0, 1.0].map(|it| {
            let width = width / columns as f64;
            Slot { left: width * it, width, names_max, names }
        });
        for row in panels.chunks(columns) {
            let all = || row.iter().zip(&slots);
            let heads = all().map(|(panel, slot)| panel.head(slot));
            let names = all().map(|(panel, slot)| panel.names_height(slot));
            let upper = heads.fold(top, |most, it| most.max(top + it));
            let lower = upper + names.fold(height, f64::max);
            for (panel, slot) in all() {
                svg += &panel.draw(slot, upper, lower);
            }
            top = lower + Placed::BELOW;
        }
        for line in wrapped(&self.note(&panels), width - 20.0) {
            top += LINE;
            add_text(&mut svg, Spot { x: 8.0, y: top - 5.0 }, "", &line);
        }
        let (title, height) = (escape(&self.title), top + 4.0);
        Some(format!(
            "<svg{attributes} width='{width}' height='{height}' viewBox='0 0 {width} {height}' \
             role='img' aria-label='{title}'>\n{inside}{svg}</svg>\n"
        ))
    }

    /// A panel on axes that it has in common with others of the same names.
    fn placed<'a>(&'a self, panel: &'a Panel) -> Option<Placed<'a>> {
        let with = |of: fn(&Panel) -> Axis, values: fn(&Panel) -> Vec<f64>| -> Vec<f64> {
            let same = self.panels.iter().filter(|it| of(it) == of(panel));
            same.flat_map(values).collect()
        };
        let x = Ruler::new(panel.x.scale, &with(|it| it.x, Panel::xs), true)?;
        let y = Ruler::new(panel.y.scale, &with(|it| it.y, Panel::ys), false)?;
        Placed::new(panel, x, y)
    }

    /// The conditions, and what is not in the picture.
    fn note(&self, panels: &[Placed<'_>]) -> String {
        let mut notes = vec![self.conditions.clone()];
        match panels.iter().map(|it| it.left_out).sum() {
            0_usize => {}
            1 => notes.push("1 value has no place on these axes".to_owned()),
            some => notes.push(format!("{some} values have no place on these axes")),
        }
        match self.panels.len() - panels.len() {
            0 => {}
            some => {
                notes.push(format!("{some} of {} panels have no two values", self.panels.len()))
            }
        }
        notes.retain(|it| !it.is_empty());
        notes.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn axis(name: &'static str, scale: Scale) -> Axis {
        Axis { name, scale }
    }

    fn curve(points: &[(f64, f64)]) -> Curve {
        let points = points.iter().map(|(x, y)| Point::new(*x, *y)).collect();
        Curve { name: "a".to_owned(), colour: 0, dash: 0, form: Form::Marked, points }
    }

    fn picture(scale: Scale, curves: Vec<Curve>, marks: Vec<Mark>) -> Picture {
        let (x, y) = (axis("across", scale), axis("up", Scale::Auto));
        let panel = Panel { title: "t".to_owned(), x, y, curves, marks };
        Picture { title: "title".to_owned(), conditions: "two".to_owned(), panels: vec![panel] }
    }

    const SCALES: [Scale; 5] = [Scale::Linear, Scale::Log, Scale::Auto, Scale::Bytes, Scale::Nines];

    #[test]
    fn values_that_cannot_be_placed_are_left_out_and_counted() {
        let points = [(1.0, 1.0), (2.0, 1e308), (3.0, f64::NAN), (f64::INFINITY, 1.0), (9.0, 7.0)];
        for scale in SCALES {
            let svg = picture(scale, vec![curve(&points)], Vec::new()).draw().unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("two; 3 values have no place"), "{svg}");
        }
        let negative = curve(&[(-1.0, 1.0), (1.0, -1.0), (2.0, 2.0)]);
        let svg = picture(Scale::Linear, vec![negative], Vec::new()).draw().unwrap();
        assert_eq!(svg.matches("class='full'").count(), 4, "{svg}");
    }

    #[test]
    fn fewer_than_two_values_beside_each_other_are_no_picture() {
        for scale in SCALES {
            for points in [&[][..], &[(1.0, 1.0)], &[(1.0, 1.0), (1.0, 2.0)]] {
                assert_eq!(picture(scale, vec![curve(points)], Vec::new()).draw(), None);
            }
            assert_eq!(picture(scale, Vec::new(), Vec::new()).draw(), None);
        }
    }

    #[test]
    fn every_form_and_mark_is_drawn_and_nothing_panics_whatever_its_values() {
        let wild = [0.0, -1.0, 0.5, 1e300, f64::NAN, f64::NEG_INFINITY];
        for form in [Form::Marked, Form::Line, Form::Marks, Form::Steps, Form::Spans] {
            for scale in SCALES {
                for value in wild {
                    let mut curve =
                        Curve { form, colour: 99, dash: 99, ..curve(&[(1.0, 1.0), (2.0, 2.0)]) };
                    curve.points[0].interval = Some([value, 2.0]);
                    curve.points[1].is_saturated = true;
                    let (x, y, name) = (value, value, "paper: <1&2".to_owned());
                    let marks = vec![
                        Mark::Value { x, y, name: name.clone() },
                        Mark::Level { y, name: name.clone() },
                        Mark::Place { x, name: name.clone() },
                        Mark::Ratio { x, between: [y, 1.0], name },
                    ];
                    let svg = picture(scale, vec![curve], marks).file().unwrap();
                    assert!(
                        !svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<1&"),
                        "{svg}"
                    );
                    assert_eq!(svg.matches("paper: &lt;1&amp;2").count(), 4, "{svg}");
                }
            }
        }
    }

    #[test]
    fn names_stand_beside_the_field_in_the_order_of_last_values() {
        let named = |name: &str, last: f64| Curve {
            name: name.to_owned(),
            ..curve(&[(1.0, 5.0), (2.0, last)])
        };
        let all = vec![named("low", 1.0), named("high", 3.0), named("middle", 2.0)];
        let svg = picture(Scale::Linear, all, Vec::new()).draw().unwrap();
        let at = |name: &str| svg.find(&format!(">{name}<")).unwrap();
        assert!(at("high") < at("middle") && at("middle") < at("low"), "{svg}");
    }

    #[test]
    fn panels_with_axes_of_one_name_have_one_scale_and_stand_side_by_side() {
        let mut it = picture(Scale::Linear, vec![curve(&[(0.0, 1.0), (4.0, 2.0)])], Vec::new());
        let other =
            Panel { curves: vec![curve(&[(0.0, 1.0), (40.0, 9.0)])], ..it.panels[0].clone() };
        it.panels.push(other);
        let svg = it.file().unwrap();
        assert!(svg.contains("width='960'") && svg.contains("xmlns="));
        assert_eq!(svg.matches(">40</text>").count(), 2, "{svg}");
        it.panels[1].x.name = "another";
        assert_eq!(it.file().unwrap().matches(">40</text>").count(), 1);
        it.panels[1].curves.clear();
        assert!(it.draw().unwrap().contains("1 of 2 panels have no two values"));
    }
}
