//! Pictures of points: what most figures do to draw theirs.

use rma_bench::drawing::{Curve, Form, Panel, Picture, Point};

use super::{
    figure::Figure,
    points::{Points, Series},
};

/// A series as a curve; `place` among the curves of its panel gives its colour.
pub(crate) fn curve(series: &Series, place: usize, form: Form) -> Curve {
    let point =
        |it: &super::points::Value| Point { interval: it.interval, ..Point::new(it.x, it.y) };
    Curve {
        name: series.name.clone(),
        colour: place,
        dash: place,
        form,
        points: series.values.iter().map(point).collect(),
    }
}

/// A picture of `panels`, with the figure's title and the conditions of its points.
pub(crate) fn picture(figure: &dyn Figure, points: &Points, panels: Vec<Panel>) -> Picture {
    let title = figure.about().title.to_owned();
    Picture { title, conditions: points.conditions.clone(), panels }
}
