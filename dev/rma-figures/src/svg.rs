//! Curves over sizes of messages, times or numbers of connections, as SVG.

use plotters::{
    coord::ranged1d::ValueFormatter,
    drawing::DrawingAreaErrorKind,
    prelude::{
        Cartesian2d, ChartBuilder, ChartContext, DrawingBackend, IntoDrawingArea, IntoLogRange,
        LineSeries, PathElement, RGBColor, Ranged, SVGBackend, WHITE,
    },
};

/// One curve: a value for each place on the axis, in their order; not a number where there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// Colours that people who see few of them tell apart.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
];

/// The axes of a drawing.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    /// The name of the axis.
    name: &'static str,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// The places where curves have values.
    pub(crate) at: Vec<f64>,
    /// Whether both axes are logarithmic; otherwise both are linear, and begin at 0.
    is_log: bool,
}

impl Axes {
    /// Sizes of messages, both axes logarithmic.
    pub(crate) fn sizes(sizes: &[u32]) -> Self {
        let at = sizes.iter().copied().map(f64::from).collect();
        Self { name: "bytes of a message", unit: "B", at, is_log: true }
    }

    /// Times in microseconds, and shares of messages, both axes linear.
    pub(crate) const fn times(at: Vec<f64>) -> Self {
        Self { name: "us", unit: "us", at, is_log: false }
    }

    /// Numbers of connections, both axes linear.
    pub(crate) fn connections(connections: &[u32]) -> Self {
        let at = connections.iter().copied().map(f64::from).collect();
        Self { name: "connections", unit: "", at, is_log: false }
    }
}

/// Draws one curve for each series over `axes`.
pub(crate) fn draw(
    (title, unit): (&str, &str),
    axes: &Axes,
    all: &[Series],
) -> Result<String, String> {
    let values = || all.iter().flat_map(|series| series.values.iter().copied());
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let (first, last) = (axes.at.iter().copied(), axes.at.iter().copied());
    let (first, last) = (first.fold(f64::MAX, f64::min), last.fold(0.0, f64::max));
    if axes.at.is_empty() {
        return Err(format!("no {}", axes.name));
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (900, 560)).into_drawing_area();
        let drawn = (|| {
            area.fill(&WHITE)?;
            let mut builder = ChartBuilder::on(&area);
            builder
                .caption(title, ("sans-serif", 20))
                .margin(16)
                .x_label_area_size(44)
                .y_label_area_size(64);
            if axes.is_log {
                let x = (first / 1.2..last * 1.2).log_scale();
                let chart = builder.build_cartesian_2d(x, (low / 1.5..high * 1.5).log_scale())?;
                curves(chart, unit, axes, all)?;
            } else {
                let chart = builder.build_cartesian_2d(0.0..last, 0.0..high * 1.1)?;
                curves(chart, unit, axes, all)?;
            }
            area.present()
        })();
        drawn.map_err(|error: Failed<'_>| error.to_string())?;
    }
    Ok(svg)
}

type Failed<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn curves<'a, X, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    unit: &str,
    axes: &Axes,
    all: &[Series],
) -> Result<(), Failed<'a>>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart.configure_mesh().x_desc(axes.name).y_desc(unit).draw()?;
    for (series, colour) in all.iter().zip(COLOURS.iter().cycle()) {
        let points = axes.at.iter().copied().zip(series.values.iter().copied());
        let points = points.filter(|(_, value)| value.is_finite());
        let line = chart.draw_series(LineSeries::new(points, colour))?;
        line.label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().border_style(COLOURS[6]).background_style(WHITE).draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_a_curve_with_its_name() {
        let series =
            |name: &str, values: [f64; 3]| Series { name: name.to_owned(), values: values.into() };
        let all = [series("first", [1.0, 2.0, 3.0]), series("second", [4.0, 2.0, 1.0])];
        let svg = draw(("a title", "us"), &Axes::sizes(&[16, 64, 256]), &all).unwrap();
        for word in ["a title", "bytes of a message", "first", "second", "us"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(svg.matches("<polyline").count() >= 2, "{svg}");
        let times = draw(("times", "share"), &Axes::times(vec![1.0, 2.0, 3.0]), &all).unwrap();
        assert!(times.contains("share") && times.matches("<polyline").count() >= 2, "{times}");
        assert!(draw(("none", "us"), &Axes::sizes(&[]), &[]).is_err());
    }
}
