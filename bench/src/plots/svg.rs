//! Curves over sizes of messages, both axes logarithmic, as SVG.

use plotters::prelude::{
    ChartBuilder, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, RGBColor, SVGBackend,
    WHITE,
};

use super::claims::Series;

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

/// Draws one curve for each series over `sizes`.
pub(super) fn draw(
    (title, unit): (&str, &str),
    sizes: &[u32],
    all: &[Series],
) -> Result<String, String> {
    let values = || all.iter().flat_map(|series| series.values.iter().copied());
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let x = |size: u32| f64::from(size);
    let (first, last) = (sizes.iter().min(), sizes.iter().max());
    let (Some(&first), Some(&last)) = (first, last) else { return Err("no sizes".to_owned()) };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (900, 560)).into_drawing_area();
        let drawn = (|| {
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(title, ("sans-serif", 20))
                .margin(16)
                .x_label_area_size(44)
                .y_label_area_size(64)
                .build_cartesian_2d(
                    (x(first) / 1.2..x(last) * 1.2).log_scale(),
                    (low / 1.5..high * 1.5).log_scale(),
                )?;
            chart.configure_mesh().x_desc("bytes of a message").y_desc(unit).draw()?;
            for (series, colour) in all.iter().zip(COLOURS.iter().cycle()) {
                let points = sizes.iter().map(|&size| x(size)).zip(series.values.iter().copied());
                let points = points.filter(|(_, value)| value.is_finite());
                let line = chart.draw_series(LineSeries::new(points, colour))?;
                line.label(&series.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            }
            chart
                .configure_series_labels()
                .border_style(COLOURS[6])
                .background_style(WHITE)
                .draw()?;
            area.present()
        })();
        drawn.map_err(|error: plotters::drawing::DrawingAreaErrorKind<_>| error.to_string())?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_a_curve_with_its_name() {
        let series =
            |name: &str, values: [f64; 3]| Series { name: name.to_owned(), values: values.into() };
        let all = [series("first", [1.0, 2.0, 3.0]), series("second", [4.0, 2.0, 1.0])];
        let svg = draw(("a title", "us"), &[16, 64, 256], &all).unwrap();
        for word in ["a title", "bytes of a message", "first", "second", "us"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(svg.matches("<polyline").count() >= 2, "{svg}");
        assert!(draw(("none", "us"), &[], &[]).is_err());
    }
}
