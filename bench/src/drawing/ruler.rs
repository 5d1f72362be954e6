//! Axes with their ends and ticks.

use super::picture::Scale;

/// Values of one axis that span more than this are drawn on a logarithmic one.
const LINEAR_MAX: f64 = 20.0;

/// An axis with its ends, and its ticks between them.
#[derive(Clone, Debug)]
pub(super) struct Ruler {
    scale: Scale,
    ends: [f64; 2],
    ticks: Vec<f64>,
}

/// A tick with the words at it.
pub(super) struct Tick {
    /// The share of the axis that is before it.
    pub(super) share: f64,
    pub(super) label: String,
}

impl Scale {
    /// Whether a value has a place on it.
    fn takes(self, value: f64) -> bool {
        match self {
            Self::Linear | Self::Auto => value.abs() < 1e18,
            Self::Log | Self::Bytes => (1e-12..1e18).contains(&value),
            Self::Nines => (0.0..100.0).contains(&value),
        }
    }

    /// The place of a value, before the axis is stretched over the field.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear | Self::Auto => value,
            Self::Log => value.log10(),
            Self::Bytes => value.log2(),
            Self::Nines => -(1.0 - value / 100.0).log10(),
        }
    }

    fn ticks(self, low: f64, high: f64) -> Vec<f64> {
        match self {
            Self::Nines => vec![50.0, 90.0, 99.0, 99.9, 99.99],
            Self::Bytes => {
                let (first, last) = (low.log2().floor() as i32, high.log2().ceil() as i32);
                let step = 1 + (last - first) / 8;
                let steps = ((last - first + step - 1) / step).max(1);
                (0..=steps).map(|it| 2_f64.powi(first + it * step)).collect()
            }
            Self::Linear | Self::Auto => {
                let span = high - low;
                let power = 10_f64.powf((span / 5.0).log10().floor());
                let nice = [1.0, 2.0, 5.0, 10.0].map(|it| it * power);
                let step = nice.into_iter().find(|it| span / it <= 6.0).unwrap_or(span);
                let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
                (first..=last).map(|it| it as f64 * step).collect()
            }
            Self::Log => {
                let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
                // Over a few decades, each has three.
                let parts: &[f64] = if last - first > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let decades = (first..=last).step_by(1 + (last - first) as usize / 10);
                let all = decades.flat_map(|it| parts.iter().map(move |part| (it, part)));
                let all: Vec<f64> = all.map(|(it, part)| part * 10_f64.powi(it)).collect();
                let from = all.iter().rposition(|it| *it <= low).unwrap_or(0);
                let to = all.iter().position(|it| *it >= high).unwrap_or(all.len() - 1);
                all[from..=to.max(from + 1).min(all.len() - 1)].to_vec()
            }
        }
    }
}

impl Ruler {
    /// For these values, as far as they have a place; `None` if none has. Its ends are ticks; if it
    /// `is_tight`, it ends at its first and last value, unless that leaves one tick.
    pub(super) fn new(scale: Scale, values: &[f64], is_tight: bool) -> Option<Self> {
        let placed = || values.iter().copied().filter(|it| scale.takes(*it));
        let (mut low, mut high) = (placed().reduce(f64::min)?, placed().reduce(f64::max)?);
        let scale = match scale {
            Scale::Auto if low >= 1e-12 && high > LINEAR_MAX * low => Scale::Log,
            Scale::Auto => Scale::Linear,
            other => other,
        };
        if scale == Scale::Linear {
            (low, high) = (low.min(0.0), high.max(0.0));
            if high - low < 1e-12 {
                high = low + 1.0;
            }
        }
        let ticks = scale.ticks(low, high);
        if is_tight && matches!(scale, Scale::Linear | Scale::Log) && low < high {
            let slack = (high - low) * 1e-9;
            let inside = |it: &&f64| (low - slack..=high + slack).contains(*it);
            let inside: Vec<f64> = ticks.iter().filter(inside).copied().collect();
            if inside.len() > 1 {
                return Some(Self { scale, ends: [low, high], ticks: inside });
            }
        }
        Some(Self { scale, ends: [ticks[0], ticks[ticks.len() - 1]], ticks })
    }

    pub(super) const fn is_log(&self) -> bool {
        matches!(self.scale, Scale::Log)
    }

    pub(super) fn takes(&self, value: f64) -> bool {
        self.scale.takes(value)
    }

    /// The share of the axis that is before a value: 0 of one that has no place, 1 at most.
    pub(super) fn share(&self, value: f64) -> f64 {
        if !self.takes(value) {
            return 0.0;
        }
        let [first, last] = self.ends.map(|it| self.scale.place(it));
        ((self.scale.place(value) - first) / (last - first)).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = Tick> {
        self.ticks.iter().map(|it| Tick { share: self.share(*it), label: self.label(*it) })
    }

    fn label(&self, value: f64) -> String {
        let largest = self.ends.iter().fold(0.0_f64, |most, it| most.max(it.abs()));
        match self.scale {
            Scale::Bytes => in_units(value, value, 1024.0, ["K", "M", "G"]),
            Scale::Log => in_units(value, value, 1000.0, ["k", "M", "G"]),
            _ if largest < 1e4 => rounded(value),
            _ => in_units(value, largest, 1000.0, ["k", "M", "G"]),
        }
    }
}

/// A value in the unit that suits `size`.
fn in_units(value: f64, size: f64, base: f64, units: [&str; 3]) -> String {
    if value == 0.0 || size < base {
        return rounded(value);
    }
    let power = (1..=3).rfind(|it| size >= base.powi(*it)).unwrap_or(1);
    format!("{} {}", rounded(value / base.powi(power)), units[power as usize - 1])
}

/// A number without the digits that only its last bits make.
fn rounded(value: f64) -> String {
    let value: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    if value != 0.0 && value.abs() < 1e-4 { format!("{value:e}") } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, values: &[f64]) -> Vec<String> {
        Ruler::new(scale, values, false).unwrap().ticks().map(|it| it.label).collect()
    }

    #[test]
    fn ticks_are_round_and_reach_around_all_values() {
        assert_eq!(labels(Scale::Log, &[3.0, 18.0]), ["2", "5", "10", "20"]);
        assert_eq!(labels(Scale::Log, &[10.0]), ["10", "20"]);
        assert_eq!(labels(Scale::Log, &[0.3, 9e5])[..4], ["0.1", "1", "10", "100"]);
        assert_eq!(labels(Scale::Log, &[1e-12, 1e17]).last().unwrap(), "1000000 G");
        let rates = labels(Scale::Linear, &[230e3, 12e3]);
        assert_eq!(rates, ["0", "50 k", "100 k", "150 k", "200 k", "250 k"]);
        assert_eq!(
            labels(Scale::Linear, &[-0.3, 0.9]),
            ["-0.4", "-0.2", "0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        assert_eq!(labels(Scale::Bytes, &[16.0, 4096.0]), ["16", "64", "256", "1 K", "4 K"]);
        assert_eq!(labels(Scale::Bytes, &[1.0]), ["1", "2"]);
    }

    #[test]
    fn only_values_that_span_more_than_twenty_times_are_on_a_logarithmic_axis() {
        let is_log = |values: &[f64]| Ruler::new(Scale::Auto, values, true).unwrap().is_log();
        assert!(is_log(&[1.0, 20.1]) && !is_log(&[1.0, 20.0]));
        assert!(!is_log(&[0.0, 1.0, 1e6]) && !is_log(&[-1.0, 1e6]));
        assert!(Ruler::new(Scale::Log, &[0.0, -1.0, f64::NAN], false).is_none());
        for values in [[0.0, 0.0], [-5.0, -5.0], [1e17, -1e17], [1e-300, 0.0]] {
            let ruler = Ruler::new(Scale::Linear, &values, true).unwrap();
            assert!(values.iter().all(|it| (0.0..=1.0).contains(&ruler.share(*it))));
        }
    }
}
